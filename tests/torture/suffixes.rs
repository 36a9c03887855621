//! Which writes `durability = "async"` loses: a primary of a cluster dies with its machine, and only the part
//! of its append-only file that had reached the disk is left; here the file is truncated at a random place.
//! Each shard then has its first acknowledged writes and lacks its last ones, without a gap. The database may
//! have been ahead of the file, or far behind. Later writes are neither lost nor confused with the lost ones.

use forebay_tests::{Client, Folder, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Local, Node, Persistence, Spec, Topology};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const WRITES: usize = 400;
/// Number of writes after the loss.
const MORE: usize = 100;

const CONFIG: &str = r#"
[memory]
durability = "async"
shards = 8

[table.entries]
columns = { id = "text key" }

[[endpoint]]
route = "POST /entries/{id}"
insert = "entries"
values = { id = "$id" }
reply = { status = 201 }

[[endpoint]]
route = "GET /entries/{id}"
get = "entries"
"#;

/// One round. The error names a write that is missing before an existing one.
pub fn run(seed: u64) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let (folder, stores) = (Folder::new(), Stores::postgres());
    let config = folder.write("suffixes.toml", CONFIG);
    let spec = Spec::new(Topology::Cluster { masters: 3, replicas: 0 }).on(Flavour::Redis);
    let memory = Local::up(spec.keep(Persistence::AppendOnly)).unwrap_or_else(|error| panic!("{error}"));
    let start = Start::new(binary(), &folder, &config).stores(&stores, &folder).memory(&memory.url());
    let server = start.start();
    server.wait_healthy();
    let node = memory.nodes().choose(&mut random).expect("there are some");
    let before_bytes = file_bytes(&memory, node);

    // The writes are drained meanwhile, or up to a moment, or not at all.
    let undrained_from = random.random_range(0..WRITES * 2);
    let mut client = server.client();
    let names = |from: usize, count: usize| (from..from + count).map(|number| format!("entry {number}"));
    for (number, name) in names(0, WRITES).enumerate() {
        if number == undrained_from {
            server.pause_drain(true);
        }
        write(&mut client, &name);
    }
    let shards = shards(&memory);
    memory.kill(&node.name).expect("a node can be killed");
    let kept_bytes = random.random_range(before_bytes..=file_bytes(&memory, node));
    let file = std::fs::File::options().write(true).open(file(&memory, node)).expect("its file");
    file.set_len(kept_bytes).expect("a file can be cut off");
    memory.start(&node.name).expect("a node can be started");
    memory.wait_ready().expect("all nodes are ready");

    let told: Vec<String> = names(0, WRITES).collect();
    let shown = told.iter().filter(|name| is_shown(&server, name)).map(String::as_str).collect();
    let lost = lost(&told, &shown, &shards)?;
    let more: Vec<String> = names(WRITES, MORE).collect();
    for name in &more {
        wait_for("it takes writes", || matches!(try_write(&server, name), 201 | 409).then_some(()));
    }
    if undrained_from < WRITES {
        server.pause_drain(false);
    }
    server.drain();
    let rows = stores.archive(&folder).rows("SELECT id FROM entries ORDER BY id");
    let rows: BTreeSet<String> = rows.into_iter().filter_map(|mut row| row.remove(0)).collect();
    let kept: BTreeSet<String> = shown.iter().map(|name| (*name).to_owned()).chain(more).collect();
    if rows != kept {
        let other: Vec<_> = rows.symmetric_difference(&kept).collect();
        return Err(format!("shown or stored, and not both: {other:?}"));
    }
    let checks = server.admin("POST", "/verify").expect(200);
    if checks["checks"][0]["clean"] != true {
        return Err(format!("memory is not the database: {checks}"));
    }
    println!("{lost} of {WRITES} are lost, each the last of their shard");
    Ok(())
}

fn try_write(server: &Server, name: &str) -> u16 {
    server.client().ask("POST", &target(name), None).status
}

fn write(client: &mut Client, name: &str) {
    client.ask("POST", &target(name), None).expect(201);
}

fn target(name: &str) -> String {
    format!("/entries/{}", name.replace(' ', "%20"))
}

/// Whether a row exists, once the shard is repaired.
fn is_shown(server: &Server, name: &str) -> bool {
    wait_for("its shard is repaired", || match server.client().get(&target(name)).status {
        200 => Some(true),
        404 => Some(false),
        _ => None,
    })
}

/// The file that a node appends to.
fn file(memory: &Local, node: &Node) -> PathBuf {
    let folder = memory.folder().join(&node.name).join("appendonlydir");
    let mut files = std::fs::read_dir(folder).expect("it has one").flatten().map(|entry| entry.path());
    files.find(|path| path.to_string_lossy().ends_with(".incr.aof")).expect("it appends to one")
}

fn file_bytes(memory: &Local, node: &Node) -> u64 {
    file(memory, node).metadata().expect("its file").len()
}

/// For each row, the key of the hash that contains it.
fn shards(memory: &Local) -> BTreeMap<String, String> {
    let mut shards = BTreeMap::new();
    for node in memory.nodes() {
        let mut connection = redis::Client::open(("127.0.0.1", node.port))
            .and_then(|client| client.get_connection())
            .expect("a connection");
        let hashes: Vec<String> = redis::cmd("KEYS").arg("fb:*:r").query(&mut connection).expect("its keys");
        for hash in hashes {
            let names: Vec<String> = redis::cmd("HKEYS").arg(&hash).query(&mut connection).expect("its rows");
            shards.extend(names.into_iter().map(|name| (name, hash.clone())));
        }
    }
    shards
}

/// Returns how many writes are lost; the error names a write of a shard that is shown although an
/// earlier one is lost.
fn lost(told: &[String], shown: &BTreeSet<&str>, shards: &BTreeMap<String, String>) -> Result<usize, String> {
    let mut first_lost: BTreeMap<&str, &str> = BTreeMap::new();
    for name in told {
        let shard = shards.get(name).ok_or_else(|| format!("{name} is in no shard"))?;
        match (shown.contains(name.as_str()), first_lost.get(shard.as_str())) {
            (false, None) => drop(first_lost.insert(shard, name)),
            (true, Some(lost)) => return Err(format!("{name} is shown, and {lost} of before it is lost")),
            _ => {}
        }
    }
    Ok(told.iter().filter(|name| !shown.contains(name.as_str())).count())
}

#[test]
fn a_write_that_is_missing_before_one_that_is_there_is_found() {
    let told: Vec<String> = (0..6).map(|number| number.to_string()).collect();
    let shards =
        told.iter().enumerate().map(|(at, name)| (name.clone(), format!("shard {}", at % 2))).collect();
    let lost = |shown: &[&str]| lost(&told, &shown.iter().copied().collect(), &shards);
    assert_eq!(lost(&["0", "1", "2", "3", "4", "5"]), Ok(0));
    // One shard has lost its last two writes, the other one none.
    assert_eq!(lost(&["0", "1", "3", "5"]), Ok(2));
    let failure = lost(&["0", "1", "4", "3", "5"]).expect_err("a hole");
    assert!(failure.starts_with("4 is shown, and 2"), "{failure}");
}
