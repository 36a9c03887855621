//! Slots that move from one node to another.

use super::{FLAVOURS, connect, down, send, up, wait_for};
use forebay_topology::{Flavour, Kind, Topology};
use redis::cmd;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn a_reshard_under_writes_loses_nothing() {
    for flavour in FLAVOURS {
        let local = up(flavour, Topology::Cluster { masters: 3, replicas: 1 });
        let (done, counts) = (AtomicBool::new(false), Mutex::new(HashMap::<String, u64>::new()));
        let moved = thread::scope(|scope| {
            let writers: Vec<_> = (0..2u64)
                .map(|writer| {
                    let (local, done, counts) = (&local, &done, &counts);
                    scope.spawn(move || {
                        for turn in 0u64.. {
                            if done.load(Ordering::Relaxed) && turn > 400 {
                                break;
                            }
                            let key = format!("{writer}-{}", turn % 400);
                            send::<u64>(local, &key, &["INCR"]).expect("a write while slots move");
                            *counts.lock().expect("no writer panics").entry(key).or_default() += 1;
                        }
                    })
                })
                .collect();
            wait_for("there are keys to move", || {
                (counts.lock().expect("no writer panics").len() > 400).then_some(())
            });
            let mut told = 0;
            let moved = local.reshard("node-1", "node-3", 300, |moved| told = moved.slots);
            done.store(true, Ordering::Relaxed);
            writers.into_iter().for_each(|writer| writer.join().expect("a writer ends"));
            assert_eq!(told, 300);
            moved.expect("slots move")
        });
        assert_eq!(moved.slots, 300);
        assert!(moved.keys > 0, "no key was in the slots that moved");
        let counts = counts.into_inner().expect("no writer panics");
        for (key, count) in &counts {
            assert_eq!(send::<u64>(&local, key, &["GET"]).expect("a read"), *count, "{flavour}: {key}");
        }
        let status = local.status().expect("a status");
        assert_eq!([status.nodes[0].slots, status.nodes[2].slots], [5461 - 300, 5462 + 300]);
        down(local);
    }
}

#[test]
fn a_reshard_that_was_interrupted_is_finished() {
    let local = up(Flavour::Redis, Topology::Cluster { masters: 2, replicas: 0 });
    // In the middle of the first node's slots: "a" is slot 15495 on the second node, "b" is 3300 on the
    // first.
    send::<()>(&local, "b", &["SET", "1"]).expect("a write");
    local.begin_slot(3300, "node-1", "node-2").expect("a slot opens");
    assert_eq!(local.move_keys(3300, "node-1", "node-2", 10).expect("keys move"), 1);
    assert_eq!(send::<i64>(&local, "b", &["GET"]).expect("the client is sent on"), 1);
    let moved = local.reshard("node-1", "node-2", 1, |_| {}).expect("it is finished");
    assert_eq!(moved.slots, 1);
    let mut target = connect(&local.nodes()[1]).expect("a connection");
    assert_eq!(cmd("GET").arg("b").query::<i64>(&mut target).expect("it is the owner"), 1);
    for (from, to, slots) in [("node-1", "node-1", 1), ("node-1", "node-2", 9000), ("node-1", "node-2", 0)] {
        let error = local.reshard(from, to, slots, |_| {}).expect_err("refused");
        assert_eq!(error.kind(), Kind::Node, "{error}");
    }
    down(local);
}
