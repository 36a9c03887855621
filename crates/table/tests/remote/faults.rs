//! Servers that restart, lose data, or fall behind the database.

use crate::common::*;
use crate::support::*;
use forebay_redis::Command;
use forebay_table::{HotKind, RemoteOptions};
use forebay_topology::{Local, Persistence, Spec};
use forebay_value::{KeyKind, Row, Value, ValueRef};

fn new_row(id: i64) -> Row {
    row(&schema(KeyKind::Bigint), id, Some(&format!("code {id}")), "b")
}

async fn restart(local: &Local) {
    let name = local.nodes()[0].name.clone();
    local.kill(&name).unwrap();
    local.start(&name).unwrap();
    local.wait_ready().unwrap();
    // The runtime was not running meanwhile: this lets it notice that its connections are closed.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
}

#[test]
fn a_restart_is_repaired_and_numbers_go_on_above() {
    let local = Local::up(Spec::new(SINGLE).keep(Persistence::Always)).unwrap();
    block_on(async {
        let record = Record::default();
        let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        server.load().await;
        for id in 0..40 {
            server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
        }
        server.apply(0, 2).await;
        restart(&local).await;
        // The first write finds another epoch, and repairs.
        for id in 40..80 {
            server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
        }
        let taken = server.table.insert(&server.link, new_row(5).as_ref()).await.unwrap_err();
        assert_eq!(taken.kind(), HotKind::Conflict { rule: ID });
        server.drain().await;
        assert_eq!(record.store.rows.lock().unwrap().len(), 80, "each row exactly once");
    });
}

#[test]
fn a_server_that_lost_everything_is_loaded_again() {
    let local = up(SINGLE);
    block_on(async {
        let record = Record::default();
        let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        server.load().await;
        for id in 0..40 {
            server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
        }
        server.drain().await;
        restart(&local).await;
        // The tier is lost too: a server creates a new one.
        let again = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        assert_ne!(again.tables.id(), server.tables.id());
        again.load().await;
        assert_eq!(again.table.count(&again.link).await.unwrap(), 40);
        let stale = server.table.insert(&server.link, new_row(100).as_ref()).await.unwrap_err();
        assert_eq!(stale.kind(), HotKind::Broken, "another tier's server is refused: {stale}");
    });
}

/// A failover to a replica whose copy is behind: the database has drained changes that the replica never
/// received.
#[test]
fn a_position_above_everything_known_drops_the_view_and_numbers_go_on_above_it() {
    for topology in [SINGLE, CLUSTER] {
        let local = Local::up(Spec::new(topology).keep(Persistence::Always)).unwrap();
        block_on(async {
            let record = Record::default();
            let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
            server.load().await;
            for id in 0..200 {
                server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
            }
            server.drain().await;
            // The loss: one shard's server has changes up to its last, the database has some beyond them. The
            // tier's random seed determines which shard has rows.
            let shard = server.table.shard_of(ValueRef::Bigint(0)).unwrap();
            let log = server.tables.log_id(shard);
            let position = record.stored.by_log.lock().unwrap()[&log] + 3;
            record.stored.by_log.lock().unwrap().insert(log, position);
            let in_shard = |id: &i64| server.table.shard_of(ValueRef::Bigint(*id)) == Some(shard);
            let (gone, new) = ((0..200).find(in_shard).unwrap(), (200..).find(in_shard).unwrap());
            record.store.rows.lock().unwrap().remove(&key_text(ValueRef::Bigint(gone)));
            record.store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(new)), new_row(new));
            restart(&local).await;
            for node in &local.nodes()[1..] {
                local.kill(&node.name).unwrap();
                local.start(&node.name).unwrap();
            }
            local.wait_ready().unwrap();
            let queue = server.tables.queue();
            while !queue.repair().await.unwrap_or(false) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            assert!(queue.status(&server.link, shard).await.unwrap().last > position);
            let other = (new + 1..).find(in_shard).unwrap();
            let unloaded = server.table.insert(&server.link, new_row(other).as_ref()).await.unwrap_err();
            assert_eq!(unloaded.kind(), HotKind::Unavailable, "{unloaded}");
            assert!(!server.table.is_loaded());
            server.load().await;
            assert_eq!(server.table.count(&server.link).await.unwrap(), 200);
            assert_eq!(server.values(&Value::Bigint(gone)).await, None);
            assert!(server.values(&Value::Bigint(new)).await.is_some());
            // The value of a row that was lost is free, that of a loaded row is not.
            let free = row(server.table.schema(), 1000, Some(&format!("code {gone}")), "b");
            server.table.insert(&server.link, free.as_ref()).await.unwrap();
            let taken = row(server.table.schema(), 1001, Some(&format!("code {new}")), "b");
            let taken = server.table.insert(&server.link, taken.as_ref()).await.unwrap_err();
            assert_eq!(taken.kind(), HotKind::Conflict { rule: CODE });
            server.table.insert(&server.link, new_row(other).as_ref()).await.unwrap();
            server.drain().await;
            assert!(record.stored.by_log.lock().unwrap()[&log] > position);
            assert_eq!(record.store.rows.lock().unwrap().len(), 202);
        });
    }
}

/// How often all primaries have run a command since they were asked to count from nothing.
async fn calls(server: &Server, command: &str) -> usize {
    let mut info = Command::new();
    info.arg("INFO").arg("commandstats");
    let told = server.client.on_each_primary(&info).await.unwrap();
    told.iter().filter(|(_, stats)| format!("{stats:?}").contains(&format!("cmdstat_{command}:"))).count()
}

/// A primary that retains its data needs no scan of all rows.
#[test]
fn a_cluster_primary_that_restarts_with_its_data_is_repaired_without_a_pass() {
    let local = Local::up(Spec::new(CLUSTER).keep(Persistence::Always)).unwrap();
    block_on(async {
        let record = Record::default();
        for id in 0..100 {
            record.store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(id)), new_row(id));
        }
        let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        server.load().await;
        for node in local.nodes() {
            for id in 0..100 {
                let id = 1_000 * i64::from(node.port) + id;
                server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
            }
            let mut reset = Command::new();
            reset.arg("CONFIG").arg("RESETSTAT");
            server.client.on_each_primary(&reset).await.unwrap();
            local.kill(&node.name).unwrap();
            local.start(&node.name).unwrap();
            local.wait_ready().unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            while !server.tables.queue().repair().await.unwrap_or(false) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            assert_eq!(calls(&server, "hscan").await, 0, "all rows were looked through");
            assert_ne!(calls(&server, "evalsha").await, 0);
            let every = (0..100).chain((0..100).map(|id| 1_000 * i64::from(node.port) + id));
            for id in every {
                let row = row(server.table.schema(), -1 - id, Some(&format!("code {id}")), "b");
                let taken = server.table.insert(&server.link, row.as_ref()).await.unwrap_err();
                assert_eq!(taken.kind(), HotKind::Conflict { rule: CODE }, "{taken}");
            }
        }
    });
}

/// The position is where a table was stopped, which is behind the database's state of the other tables.
#[test]
fn a_failover_beside_a_stopped_table_drops_the_view_of_the_others() {
    let local = Local::up(Spec::new(SINGLE).keep(Persistence::Always)).unwrap();
    block_on(async {
        let record = Record::default();
        let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        server.load().await;
        for id in 0..200 {
            server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
        }
        server.drain().await;
        let shard = server.table.shard_of(ValueRef::Bigint(0)).unwrap();
        let queue = server.tables.queue();
        for (stopped, is_kept) in [(server.table.schema().name.as_str(), true), ("others", false)] {
            let known = queue.status(&server.link, shard).await.unwrap().last;
            *record.stored.stopped.lock().unwrap() = Some((known + 3, vec![(stopped.to_owned(), 1)]));
            restart(&local).await;
            while !queue.repair().await.unwrap_or(false) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            assert_eq!(server.table.check_loaded(&server.link).await.unwrap(), is_kept, "{stopped} stopped");
            let status = queue.status(&server.link, shard).await.unwrap();
            assert!(status.last > known + 3, "{status:?}");
        }
    });
}

/// A drain that read the shard before it was repaired must not advance its position afterwards.
#[test]
fn a_repair_gives_the_position_another_opening() {
    let local = Local::up(Spec::new(SINGLE).keep(Persistence::Always)).unwrap();
    block_on(async {
        let record = Record::default();
        let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        server.load().await;
        let queue = server.tables.queue();
        let opening = async || {
            let known = queue.status(&server.link, 0).await.unwrap().opening;
            assert_eq!(record.stored.openings.lock().unwrap().get(&queue.log_id(0)), Some(&known));
            forebay_table::opening_number(&known)
        };
        let first = opening().await;
        restart(&local).await;
        while !queue.repair().await.unwrap_or(false) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(opening().await, first + 1);
        // The database goes back to a state before that: the shard is repaired again.
        record.stored.openings.lock().unwrap().insert(queue.log_id(0), format!("{first}:before"));
        queue.request_repair(&server.link, 0).await.unwrap();
        assert_eq!(opening().await, first + 2);
    });
}

/// One primary loses reservations whose rows are on other primaries. Nothing is drained, so that no load can
/// restore them.
#[test]
fn a_cluster_that_lost_reservations_still_knows_every_value() {
    let local = up(CLUSTER);
    block_on(async {
        let record = Record::default();
        let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        server.load().await;
        // Each primary in turn restarts empty: it has lost its rows, its reservations, perhaps the tier's own
        // key.
        for (round, node) in (1i64..).zip(local.nodes()) {
            for id in round * 1000..round * 1000 + 100 {
                server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
            }
            local.kill(&node.name).unwrap();
            local.start(&node.name).unwrap();
            local.wait_ready().unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            while !server.tables.queue().repair().await.unwrap_or(false) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            server.load().await;
            let mut left = 0;
            for id in round * 1000..round * 1000 + 100 {
                let is_left = server.values(&Value::Bigint(id)).await.is_some();
                left += u64::from(is_left);
                let row = row(server.table.schema(), 50_000 + id, Some(&format!("code {id}")), "b");
                match server.table.insert(&server.link, row.as_ref()).await {
                    Ok(()) => assert!(!is_left, "code {id} is there twice"),
                    Err(error) => {
                        assert_eq!(error.kind(), HotKind::Conflict { rule: CODE }, "{error}");
                        assert!(is_left, "code {id} is free: its row was lost");
                    }
                }
            }
            assert!((1..100).contains(&left), "{left} of 100 rows are left on two of three primaries");
        }
    });
}

/// Rows cannot be scanned, so that the rebuild stands still: meanwhile writes that need no value of the
/// primary that lost its reservations succeed; writes that need one wait, and are decided correctly once the
/// reservations are rebuilt.
#[test]
fn a_shard_takes_writes_while_its_reservations_are_made_again() {
    let local = up(CLUSTER);
    block_on(async {
        let record = Record::default();
        let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        server.load().await;
        for id in 0..300 {
            server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
        }
        let scans = async |rule: &str| {
            let mut command = Command::new();
            command.arg("ACL").arg("SETUSER").arg("default").arg(rule);
            server.client.on_each_primary(&command).await.unwrap();
        };
        let lost = &local.nodes()[0].name;
        local.kill(lost).unwrap();
        local.start(lost).unwrap();
        local.wait_ready().unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        scans("-hscan").await;
        while !server.tables.queue().repair().await.unwrap_or(false) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        server.load().await;
        let mut left = Vec::new();
        for id in 0..300 {
            if server.values(&Value::Bigint(id)).await.is_some() {
                left.push(id);
                // In whatever shard its code is reserved.
                server.table.increment(&server.link, ValueRef::Bigint(id), CLICKS, 1).await.unwrap();
            }
        }
        assert!(
            (100..300).contains(&left.len()),
            "{} of 300 rows are left on two of three primaries",
            left.len()
        );
        let (mut taken, mut waiting) = (0, Vec::new());
        for id in 1000..1100 {
            match server.table.insert(&server.link, new_row(id).as_ref()).await {
                Ok(()) => taken += 1,
                Err(error) => {
                    assert_eq!(error.kind(), HotKind::Unavailable, "{error}");
                    waiting.push(id);
                }
            }
            // Of the first two, both wait in one of nine rounds.
            if waiting.len() >= 2 && taken > 0 {
                break;
            }
        }
        assert!(taken > 0, "values that are reserved on the other primaries are taken");
        assert!(waiting.len() >= 2, "a third of the values are reserved where some were lost");
        scans("+hscan").await;
        for id in waiting {
            server.table.insert(&server.link, new_row(id).as_ref()).await.unwrap();
        }
        for id in left {
            let row = row(server.table.schema(), 50_000 + id, Some(&format!("code {id}")), "b");
            let error = server.table.insert(&server.link, row.as_ref()).await.unwrap_err();
            assert_eq!(error.kind(), HotKind::Conflict { rule: CODE }, "{error}");
        }
    });
}

/// Commands that a server does not have, or that its user may not run, are named at the start.
#[test]
fn what_a_server_lacks_is_named() {
    for (directives, expected) in [
        (&["rename-command XTRIM \"\"", "rename-command HSTRLEN \"\""][..], &["HSTRLEN", "XTRIM"][..]),
        (&["user default on nopass ~* &* +@all -zcount -hrandfield"], &["ZCOUNT", "HRANDFIELD"]),
        // A passing state, and no lacking command.
        (&["maxmemory 1mb", "maxmemory-policy noeviction"], &[]),
    ] {
        let spec = Spec::new(SINGLE).keep(Persistence::None);
        let spec = directives.iter().fold(spec, |spec, directive| spec.directive(*directive));
        let local = Local::up(spec).unwrap();
        block_on(async {
            let record = Record::default();
            let opened = try_open(&local, spec_of_things(), RemoteOptions::default(), &record).await;
            let said = opened.err().map(|error| error.to_string()).unwrap_or_default();
            for command in expected {
                assert!(said.contains(command), "{command}: {said}");
            }
            assert_eq!(said.contains("does not do"), !expected.is_empty(), "{said}");
        });
    }
}

/// No server without the library is available: here the script is kept from seeing it.
#[test]
fn a_server_without_the_library_struct_is_named() {
    let local = up(SINGLE);
    let probe = concat!("local struct\n", include_str!("../../src/remote/scripts/probe.lua"));
    block_on(async {
        let client =
            forebay_redis::Client::connect(&local.url(), forebay_redis::Options::default()).await.unwrap();
        let mut eval = Command::new();
        eval.arg("EVAL").arg(probe).arg(1).arg("key");
        let answers = client.on_each_primary(&eval).await.unwrap();
        let said = format!("{:?}", answers[0].1);
        assert!(said.contains("no such library of Lua"), "{said}");
    });
}

fn spec_of_things() -> forebay_table::TableSpec {
    spec(KeyKind::Bigint)
}
