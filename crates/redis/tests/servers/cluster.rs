//! A cluster of 3 primaries and 3 replicas: routing, resharding under load, a dead primary.

use crate::support::{
    COUNT, FLAVOURS, Load, apply, connect, get, int, keys, name_of, quick, settle, until, up,
};
use forebay_redis::{
    Durability, Options, ReadFrom, Replicas, Slot, Topology as Shape, slot_of, tag_for_slot,
};
use forebay_topology::{Flavour, Topology};
use std::collections::HashSet;

const CLUSTER: Topology = Topology::Cluster { masters: 3, replicas: 1 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_slot_is_found() {
    for flavour in FLAVOURS {
        let local = up(CLUSTER, flavour);
        let client = connect(&local, quick()).await;
        assert_eq!(client.topology(), Shape::Cluster);
        let primaries = client.primaries();
        assert_eq!(primaries.len(), 3);
        let slots: u32 =
            primaries.iter().flat_map(|node| &node.slots).map(|(a, b)| u32::from(b - a) + 1).sum();
        assert_eq!(slots, 16_384);
        assert!(primaries.iter().all(|node| node.replicas.len() == 1));
        assert_eq!(client.facts().await.unwrap().len(), 6);
        let link = client.link();
        for slot in (0..16_384).step_by(331) {
            let key = format!("row:{{{}}}", tag_for_slot(Slot(slot)));
            assert_eq!(int(&apply(&link, &key, "a").await.unwrap()), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_lose_and_repeat_nothing() {
    for flavour in FLAVOURS {
        let local = up(CLUSTER, flavour);
        let client = connect(&local, quick()).await;
        let link = client.link();
        let load = Load::start(&link, &keys(300), 16);
        load.progress(500).await;
        let (one, two) = (
            name_of(&local, &client.primaries()[0].address),
            name_of(&local, &client.primaries()[1].address),
        );
        // The move is stopped half-way, so that MOVED, ASK and both kinds of keys occur.
        let slot = slot_of(b"key-0");
        let at = client
            .primaries()
            .iter()
            .find(|node| node.slots.iter().any(|r| (r.0..=r.1).contains(&slot.0)))
            .unwrap()
            .address
            .clone();
        let from = name_of(&local, &at);
        let to = if from == one { &two } else { &one };
        local.begin_slot(slot.0, &from, to).unwrap();
        let asked = apply(&link, &format!("new:{{{}}}", tag_for_slot(slot)), "asked").await.unwrap();
        assert_eq!(int(&asked), 1);
        load.progress(500).await;
        while local.move_keys(slot.0, &from, to, 10).unwrap() > 0 {}
        load.progress(500).await;
        local.finish_slot(slot.0, &from, to).unwrap();
        local.reshard(&one, &two, 100, |_| {}).unwrap();
        load.progress(500).await;
        local.reshard(&two, &one, 100, |_| {}).unwrap();
        load.progress(500).await;
        let ledger = load.stop().await;
        assert_eq!((ledger.not_sent.len(), ledger.unknown.len()), (0, 0));
        settle(&link, &ledger).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_primary_loses_nothing_that_all_replicas_had() {
    for flavour in FLAVOURS {
        let local = up(CLUSTER, flavour);
        let options = Options { durability: Durability::Replicated(Replicas::Count(1)), ..quick() };
        let client = connect(&local, options).await;
        let link = client.link();
        let all = keys(300);
        let load = Load::start(&link, &all, 16);
        load.progress(1_000).await;
        let dead = client.primaries()[0].clone();
        local.kill(&name_of(&local, &dead.address)).unwrap();
        until("a replica takes its place", async || {
            client.primaries().iter().any(|node| node.address == dead.replicas[0])
        })
        .await;
        // The promoted primary has no replica left: its slots take no writes, while the other slots do.
        load.progress(500).await;
        local.start(&name_of(&local, &dead.address)).unwrap();
        let key = all
            .iter()
            .find(|key| dead.slots.iter().any(|r| (r.0..=r.1).contains(&slot_of(key.as_bytes()).0)))
            .unwrap();
        until("its slots take writes again", async || apply(&link, key, "after").await.is_ok()).await;
        let ledger = load.stop().await;
        settle(&link, &ledger).await;
        let count =
            link.eval_read(slot_of(key.as_bytes()), &COUNT, vec![key.clone().into()], vec![]).await.unwrap();
        assert!(int(&count) > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_come_from_replicas_and_survive_them() {
    let local = up(CLUSTER, Flavour::Valkey);
    let client = connect(&local, Options { read_from: ReadFrom::Replicas, ..quick() }).await;
    let link = client.link();
    let all = keys(60);
    for key in &all {
        apply(&link, key, "a").await.unwrap();
    }
    let count = async |key: &String| {
        link.eval_read(slot_of(key.as_bytes()), &COUNT, vec![key.clone().into()], vec![]).await
    };
    until("the replicas have it", async || {
        let mut have = HashSet::new();
        for key in &all {
            if int(&count(key).await.unwrap()) == 1 {
                have.insert(key);
            }
        }
        have.len() == all.len()
    })
    .await;
    let mut reads = 0;
    for node in client.primaries() {
        let gets =
            crate::support::info(&client, &node.replicas[0], "commandstats", "cmdstat_evalsha_ro").await;
        reads += usize::from(gets.contains("calls="));
    }
    assert_eq!(reads, 3);
    for node in client.primaries() {
        local.kill(&name_of(&local, &node.replicas[0])).unwrap();
    }
    for key in &all {
        assert_eq!(int(&count(key).await.unwrap()), 1);
        assert_eq!(link.read(slot_of(b"absent"), get("absent")).await.unwrap(), forebay_redis::Value::Nil);
    }
}
