//! One server: batches, scripts, epochs, dropped calls, admin helpers, a server that hangs.

use crate::support::{
    APPLY, COUNT, EPOCH, FLAVOURS, Load, address, apply, connect, get, info, int, quick, settle, text, up,
};
use forebay_redis::{
    Client, Command, Durability, Error, Kind, Options, Script, Server, Topology as Shape, Value, slot_of,
};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};

#[tokio::test]
async fn what_is_written_can_be_read() {
    for flavour in FLAVOURS {
        let local = up(Topology::Single, flavour);
        let client = connect(&local, quick()).await;
        assert_eq!(client.topology(), Shape::Single);
        let link = client.link();
        let slot = slot_of(b"k");
        assert_eq!(int(&apply(&link, "k", "a").await.unwrap()), 1);
        assert_eq!(int(&apply(&link, "k", "a").await.unwrap()), 2);
        let count = link.eval_read(slot, &COUNT, vec![b"k".to_vec()], vec![]).await.unwrap();
        assert_eq!(int(&count), 1);
        assert_eq!(link.read(slot, get("absent")).await.unwrap(), Value::Nil);
        let error = link.read(slot, get("k")).await.unwrap_err();
        assert_eq!(error.code(), Some("WRONGTYPE"));
        let facts = client.facts().await.unwrap().remove(0);
        assert_eq!(facts.server, if flavour == Flavour::Redis { Server::Redis } else { Server::Valkey });
        assert_eq!(facts.waitaof, flavour == Flavour::Valkey);
        assert!(facts.streams && facts.functions && !facts.appendonly);
    }
}

#[tokio::test]
async fn what_arrives_together_is_one_batch() {
    let local = up(Topology::Single, Flavour::Redis);
    let client = connect(&local, quick()).await;
    let (link, node) = (client.link(), address(&local, "node-1"));
    apply(&link, "k", "first").await.unwrap();
    let before: u64 = info(&client, &node, "stats", "total_reads_processed").await.parse().unwrap();
    let calls: Vec<_> = (0..500)
        .map(|number| {
            tokio::spawn(link.write(
                slot_of(b"k"),
                &APPLY,
                vec![b"k".to_vec()],
                vec![format!("{number}").into()],
            ))
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let after: u64 = info(&client, &node, "stats", "total_reads_processed").await.parse().unwrap();
    // 500 scripts of 110 bytes are four reads of the server's 16 KiB; the other reads are this test's INFO.
    assert!(after - before < 20, "{} reads for 500 concurrent calls", after - before);
    let count = link.eval_read(slot_of(b"k"), &COUNT, vec![b"k".to_vec()], vec![]).await.unwrap();
    assert_eq!(int(&count), 501);
}

#[tokio::test]
async fn a_caller_that_goes_away_disturbs_nobody() {
    let local = up(Topology::Single, Flavour::Redis);
    let client = connect(&local, quick()).await;
    let link = client.link();
    let mut kept = Vec::new();
    for number in 0..200 {
        let call = tokio::spawn({
            let link = link.clone();
            async move { apply(&link, "k", &number.to_string()).await }
        });
        if number % 2 == 0 {
            kept.push(call)
        } else {
            call.abort()
        }
        if number % 10 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for call in kept {
        assert_eq!(int(&call.await.unwrap().unwrap()), 1);
    }
}

#[tokio::test]
async fn a_script_that_the_server_forgot_is_loaded_again() {
    let local = up(Topology::Single, Flavour::Valkey);
    let client = connect(&local, quick()).await;
    let (link, node) = (client.link(), address(&local, "node-1"));
    for round in 1..=3 {
        let mut flush = Command::new();
        flush.arg("SCRIPT").arg("FLUSH");
        client.on_node(&node, &flush).await.unwrap();
        let (one, two) =
            tokio::join!(apply(&link, "k", "a"), link.eval_read(slot_of(b"k"), &EPOCH, vec![], vec![]));
        assert_eq!(int(&one.unwrap()), round);
        assert!(!text(&two.unwrap()).is_empty());
    }
    static WRONG: Script = Script::new("wrong", "this is no Lua");
    let error = link.write(slot_of(b"k"), &WRONG, vec![], vec![]).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Server { .. }), "{error}");
    assert_eq!(int(&apply(&link, "k", "a").await.unwrap()), 4);
}

#[tokio::test]
async fn the_epoch_is_the_process_and_its_history() {
    let local = up(Topology::Single, Flavour::Redis);
    let client = connect(&local, quick()).await;
    let link = client.link();
    let ask = async || text(&link.write(slot_of(b"k"), &EPOCH, vec![], vec![]).await.unwrap());
    let before = ask().await;
    let facts = client.facts().await.unwrap().remove(0);
    assert_eq!(before, format!("{}:{}", facts.run_id, facts.replication_id));
    local.kill("node-1").unwrap();
    local.start("node-1").unwrap();
    local.wait_ready().unwrap();
    // The first call may use the old connection, whose end this runtime has not noticed yet: its outcome is
    // unknown.
    let mut after = before.clone();
    crate::support::until("the new process answers", async || {
        let Ok(epoch) = link.write(slot_of(b"k"), &EPOCH, vec![], vec![]).await else { return false };
        after = text(&epoch);
        true
    })
    .await;
    assert_ne!(after, before);
}

#[tokio::test]
async fn the_epoch_changes_when_the_history_does_on_a_living_connection() {
    let local = up(Topology::Replicas { replicas: 1 }, Flavour::Redis);
    let client = connect(&local, quick()).await;
    let link = client.link();
    let ask = async || text(&link.write(slot_of(b"k"), &EPOCH, vec![], vec![]).await.unwrap());
    let before = ask().await;
    let (node, other) = (address(&local, "node-1"), address(&local, "node-2"));
    let follow = |words: &[&str]| {
        let mut command = Command::new();
        command.arg("REPLICAOF").arg(words);
        command
    };
    let port = other.to_string().rsplit(':').next().unwrap().to_owned();
    client.on_node(&other, &follow(&["NO", "ONE"])).await.unwrap();
    client.on_node(&node, &follow(&["127.0.0.1", &port])).await.unwrap();
    crate::support::until("it follows", async || {
        info(&client, &node, "replication", "master_link_status").await == "up"
    })
    .await;
    client.on_node(&node, &follow(&["NO", "ONE"])).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(forebay_redis::limits::EPOCH_IDLE_MS)).await;
    assert_ne!(ask().await, before);
}

#[tokio::test]
async fn keys_are_scanned_to_the_end() {
    let local = up(Topology::Single, Flavour::Redis);
    let client = connect(&local, quick()).await;
    let link = client.link();
    for number in 0..2_500 {
        apply(&link, &format!("row:{number}"), "a").await.unwrap();
    }
    apply(&link, "other", "a").await.unwrap();
    let mut scan = client.scan(&address(&local, "node-1"), b"row:*").await.unwrap();
    let mut found = std::collections::HashSet::new();
    while let Some(keys) = scan.next().await.unwrap() {
        found.extend(keys);
    }
    assert_eq!(found.len(), 2_500);
    let mut size = Command::new();
    size.arg("DBSIZE");
    assert_eq!(int(&client.on_each_primary(&size).await.unwrap()[0].1), 2_501);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_waited_for_no_longer_than_agreed() {
    let local = up(Topology::Single, Flavour::Redis);
    let client = connect(&local, quick()).await;
    let link = client.link();
    let load = Load::start(&link, &crate::support::keys(50), 8);
    load.progress(200).await;
    local.pause("node-1").unwrap();
    let unknown = apply(&link, "k", "x").await.unwrap_err();
    assert!(matches!(unknown.kind(), Kind::UnknownOutcome | Kind::NotSent), "{unknown}");
    let not_sent = apply(&link, "k", "y").await.unwrap_err();
    assert_eq!(not_sent.kind(), &Kind::NotSent, "{not_sent}");
    let read = link.read(slot_of(b"k"), get("k")).await.unwrap_err();
    assert_eq!(read.kind(), &Kind::NotSent, "{read}");
    local.resume_node("node-1").unwrap();
    load.progress(200).await;
    let ledger = load.stop().await;
    assert!(!ledger.unknown.is_empty(), "some were on their way when it stopped");
    settle(&link, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_flight_is_an_unknown_outcome_and_a_dead_server_is_not_sent() {
    let spec = Spec::new(Topology::Single).on(Flavour::Valkey).keep(Persistence::Always);
    let local = Local::up(spec).unwrap();
    let client = connect(&local, Options { durability: Durability::Sync, ..quick() }).await;
    let link = client.link();
    static SLOW: Script = Script::new("slow", "redis.call('INCR', KEYS[1]) while true do end");
    let call = tokio::spawn(link.write(slot_of(b"slow"), &SLOW, vec![b"slow".to_vec()], vec![]));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    local.kill("node-1").unwrap();
    let error: Error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), &Kind::UnknownOutcome, "{error}");
    assert_eq!(apply(&link, "k", "x").await.unwrap_err().kind(), &Kind::NotSent);

    local.start("node-1").unwrap();
    local.wait_ready().unwrap();
    let load = Load::start(&link, &crate::support::keys(50), 8);
    for _ in 0..3 {
        load.progress(100).await;
        local.kill("node-1").unwrap();
        local.start("node-1").unwrap();
        local.wait_ready().unwrap();
    }
    load.progress(100).await;
    let ledger = load.stop().await;
    // Sync: every answered write has survived every kill.
    settle(&link, &ledger).await;
}

#[tokio::test]
async fn links_of_several_runtimes_share_a_client() {
    let local = up(Topology::Single, Flavour::Redis);
    let client: Client = connect(&local, quick()).await;
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let client = client.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let link = client.link();
                    for number in 0..100 {
                        apply(&link, "shared", &format!("{thread}-{number}")).await.unwrap();
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    }
    let count =
        client.link().eval_read(slot_of(b"shared"), &COUNT, vec![b"shared".to_vec()], vec![]).await.unwrap();
    assert_eq!(int(&count), 300);
}
