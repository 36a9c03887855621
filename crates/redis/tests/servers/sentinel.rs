//! A primary that Sentinel watches: found by name, followed when it dies, hangs or is handed over.

use crate::support::{FLAVOURS, Load, connect, keys, name_of, quick, settle, until, up};
use forebay_redis::{Durability, Options, Replicas, Topology as Shape};
use forebay_topology::Topology;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_followed() {
    for flavour in FLAVOURS {
        let local = up(Topology::Sentinel { replicas: 2 }, flavour);
        let options = Options { durability: Durability::Replicated(Replicas::Count(2)), ..quick() };
        let client = connect(&local, options).await;
        assert_eq!(client.topology(), Shape::Sentinel);
        let link = client.link();
        let load = Load::start(&link, &keys(100), 8);
        load.progress(500).await;
        let dead = client.primaries()[0].address.clone();
        local.kill(&name_of(&local, &dead)).unwrap();
        until("another is primary", async || client.primaries()[0].address != dead).await;
        local.start(&name_of(&local, &dead)).unwrap();
        load.progress(500).await;
        let ledger = load.stop().await;
        // Both replicas had every answered write, whichever of them was promoted.
        settle(&link, &ledger).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stands_still_is_left() {
    let local = up(Topology::Sentinel { replicas: 1 }, FLAVOURS[1]);
    let options = Options { durability: Durability::Replicated(Replicas::All), ..quick() };
    let client = connect(&local, options).await;
    let link = client.link();
    let load = Load::start(&link, &keys(100), 8);
    load.progress(500).await;
    let still = client.primaries()[0].address.clone();
    local.pause(&name_of(&local, &still)).unwrap();
    until("another is primary", async || client.primaries()[0].address != still).await;
    local.resume_node(&name_of(&local, &still)).unwrap();
    load.progress(500).await;
    let ledger = load.stop().await;
    settle(&link, &ledger).await;
}
