//! Durability that is not available at the moment: too few replicas, a disk that syncs late.

use crate::support::{COUNT, FLAVOURS, address, apply, connect, info, int, quick, until, up};
use forebay_redis::{Address, Client, Durability, Kind, Options, Replicas, slot_of};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};

// One thread: requests that are made together are sent together, however loaded the machine is.
#[tokio::test]
async fn too_few_replicas_is_an_unknown_outcome_and_then_nothing_is_sent() {
    for flavour in FLAVOURS {
        let local = up(Topology::Replicas { replicas: 2 }, flavour);
        let options = Options { durability: Durability::Replicated(Replicas::Count(2)), ..quick() };
        let client = connect(&local, options).await;
        let link = client.link();
        apply(&link, "k", "both").await.unwrap();
        let node = address(&local, "node-1");
        let before = calls(&client, &node, "cmdstat_wait").await;
        let (one, two) = tokio::join!(apply(&link, "k", "both"), apply(&link, "j", "both"));
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(calls(&client, &node, "cmdstat_wait").await, before + 1);
        local.pause("node-3").unwrap();
        let error = apply(&link, "k", "one").await.unwrap_err();
        assert_eq!(error.kind(), &Kind::UnknownOutcome, "{error}");
        assert!(error.to_string().contains("only 1 of 2"), "{error}");
        local.kill("node-3").unwrap();
        until("the primary has noticed", async || {
            info(&client, &node, "replication", "connected_slaves").await == "1"
        })
        .await;
        let error = apply(&link, "k", "none").await.unwrap_err();
        assert_eq!(error.kind(), &Kind::NotSent, "{error}");
        let count = link.eval_read(slot_of(b"k"), &COUNT, vec![b"k".to_vec()], vec![]).await.unwrap();
        assert_eq!(int(&count), 2);
        local.start("node-3").unwrap();
        until("writes are taken again", async || apply(&link, "k", "again").await.is_ok()).await;
    }
}

#[tokio::test]
async fn sync_is_what_the_server_can_give() {
    let keep =
        |flavour, persistence| Local::up(Spec::new(Topology::Single).on(flavour).keep(persistence)).unwrap();
    let sync = || Options { durability: Durability::Sync, ..Options::default() };

    // WAITAOF, once for all requests of a batch.
    let local = keep(Flavour::Valkey, Persistence::EverySecond);
    let client = connect(&local, sync()).await;
    let link = client.link();
    apply(&link, "k", "a").await.unwrap();
    let node = address(&local, "node-1");
    let before = calls(&client, &node, "cmdstat_waitaof").await;
    let (one, two, three) =
        tokio::join!(apply(&link, "k", "b"), apply(&link, "k", "c"), apply(&link, "k", "d"));
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    assert_eq!(calls(&client, &node, "cmdstat_waitaof").await, before + 1);

    // `appendfsync always` needs no WAITAOF.
    for flavour in FLAVOURS {
        let local = keep(flavour, Persistence::Always);
        let client = connect(&local, sync()).await;
        apply(&client.link(), "k", "a").await.unwrap();
        let waits = info(&client, &address(&local, "node-1"), "commandstats", "cmdstat_waitaof").await;
        assert_eq!(waits, "");
    }
}

/// How often a command was called.
async fn calls(client: &Client, node: &Address, field: &str) -> u64 {
    let line = info(client, node, "commandstats", field).await;
    line.strip_prefix("calls=")
        .and_then(|rest| rest.split(',').next())
        .map_or(0, |count| count.parse().expect("a count"))
}
