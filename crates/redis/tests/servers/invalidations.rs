//! Invalidations: on every primary, and the message when some may have been missed.

use crate::support::{FLAVOURS, PATIENCE, connect, quick, up};
use forebay_redis::{Command, Invalidation, Invalidations, Script, slot_of};
use forebay_topology::Topology;
use std::collections::HashSet;
use tokio::time::timeout;

static SET: Script = Script::new("set", "redis.call('SET', KEYS[1], ARGV[2]) return 1");

async fn next(heard: &mut Invalidations) -> Invalidation {
    timeout(PATIENCE, heard.next()).await.expect("something is heard").expect("as long as it lives")
}

/// Receives until all wanted keys were reported; other messages are ignored.
async fn hear_all(heard: &mut Invalidations, mut wanted: HashSet<Vec<u8>>) {
    while !wanted.is_empty() {
        if let Invalidation::Keys(keys) = next(heard).await {
            for key in keys {
                assert!(key.starts_with(b"tag:"), "{:?} has another prefix", String::from_utf8_lossy(&key));
                wanted.remove(&key);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_to_a_prefix_are_heard_from_every_primary() {
    for flavour in FLAVOURS {
        for topology in [Topology::Single, Topology::Cluster { masters: 3, replicas: 0 }] {
            let local = up(topology, flavour);
            let client = connect(&local, quick()).await;
            let mut heard = client.invalidations(b"tag:");
            // One message for each connection that begins: earlier writes were not seen.
            for _ in client.primaries() {
                assert_eq!(next(&mut heard).await, Invalidation::Everything);
            }
            let link = client.link();
            let keys: HashSet<Vec<u8>> = (0..50).map(|number| format!("tag:{number}").into_bytes()).collect();
            for key in keys.iter().cloned().chain([b"other".to_vec()]) {
                link.write(slot_of(&key), &SET, vec![key], vec![b"x".to_vec()]).await.expect("written");
            }
            hear_all(&mut heard, keys).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_been_missed_is_everything() {
    for flavour in FLAVOURS {
        let local = up(Topology::Single, flavour);
        let client = connect(&local, quick()).await;
        let mut heard = client.invalidations(b"tag:");
        assert_eq!(next(&mut heard).await, Invalidation::Everything);
        let node = client.primaries()[0].address.clone();
        let command = |words: &[&str]| {
            let mut command = Command::new();
            command.arg(words);
            command
        };
        client.on_node(&node, &command(&["FLUSHALL"])).await.expect("flushed");
        assert_eq!(next(&mut heard).await, Invalidation::Everything, "a flush");
        client.on_node(&node, &command(&["CLIENT", "KILL", "TYPE", "normal"])).await.expect("killed");
        assert_eq!(next(&mut heard).await, Invalidation::Everything, "the connection is lost");
        assert_eq!(next(&mut heard).await, Invalidation::Everything, "and there again");
        client.on_node(&node, &command(&["SET", "tag:1", "x"])).await.expect("set");
        hear_all(&mut heard, HashSet::from([b"tag:1".to_vec()])).await;
    }
}
