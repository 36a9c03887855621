//! Every topology with the servers that are installed, real processes throughout: up, status, write
//! and read, a dead primary, down.

use forebay_topology::{
    Error, Flavour, Kind, Local, Node, NodeKind, Persistence, Role, Running, Spec, Topology,
};
use redis::{Connection, RedisResult, cmd};
use std::collections::HashMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Every flavour must be there: `scripts/services env` says where.
const FLAVOURS: [Flavour; 2] = [Flavour::Redis, Flavour::Valkey];

/// A failover takes seconds, on a busy machine more.
const PATIENCE: Duration = Duration::from_secs(90);

fn connect(node: &Node) -> RedisResult<Connection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", node.port))?;
    let connection = client.get_connection_with_timeout(Duration::from_secs(2))?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(connection)
}

fn node<'a>(local: &'a Local, name: &str) -> &'a Node {
    local.nodes().iter().find(|node| node.name == name).expect("a node of that name")
}

/// Tries until it gives something.
#[track_caller]
fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Command lines that name this folder.
fn processes_naming(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    fs::read_dir("/proc")
        .expect("a process table")
        .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&folder))
        .collect()
}

#[track_caller]
fn down(local: Local) {
    let folder = local.folder().to_owned();
    assert_eq!(processes_naming(&folder).len(), {
        let status = local.status().expect("a status");
        status.nodes.iter().filter(|node| node.running != Running::Dead).count()
    });
    local.down().expect("it can be taken down");
    assert_eq!(processes_naming(&folder), Vec::<String>::new());
    assert!(!folder.exists(), "{} is left", folder.display());
}

/// Sends one command to whoever owns the key, following the redirections of a cluster.
fn send<T: redis::FromRedisValue>(local: &Local, key: &str, words: &[&str]) -> RedisResult<T> {
    send_from(&local.nodes()[0], local, key, words)
}

/// The same, beginning with a node that is a primary now.
#[track_caller]
fn send_to_primary<T: redis::FromRedisValue>(local: &Local, key: &str, words: &[&str]) -> T {
    let primary = local.primaries().expect("a status").remove(0);
    send_from(&primary, local, key, words).expect("an answer")
}

fn send_from<T: redis::FromRedisValue>(
    first: &Node,
    local: &Local,
    key: &str,
    words: &[&str],
) -> RedisResult<T> {
    let mut port = first.port;
    let mut asking = false;
    for _ in 0..20 {
        let target = local.nodes().iter().find(|node| node.port == port).expect("a node of ours");
        let mut connection = connect(target)?;
        if asking {
            cmd("ASKING").query::<()>(&mut connection)?;
        }
        let mut command = cmd(words[0]);
        command.arg(key).arg(&words[1..]);
        match command.query(&mut connection) {
            Err(error) => match error.redirect_node() {
                Some((address, _)) => {
                    asking = error.code() == Some("ASK");
                    port = address.rsplit_once(':').expect("host:port").1.parse().expect("a port");
                }
                None => return Err(error),
            },
            done => return done,
        }
    }
    panic!("too many redirections for {key}");
}

fn up(flavour: Flavour, topology: Topology) -> Local {
    let local = Local::up(Spec::new(topology).on(flavour)).expect("it comes up");
    let status = local.status().expect("a status");
    assert!(status.healthy, "{status:#?}");
    assert_eq!(status.nodes.len(), topology.servers() + topology.sentinels());
    assert!(status.server.contains(flavour.program()) || std::env::var_os(flavour.variable()).is_some());
    local
}

#[test]
fn single_keeps_its_data_over_a_kill() {
    for flavour in FLAVOURS {
        let spec = Spec::new(Topology::Single).on(flavour).keep(Persistence::Always);
        let local = Local::up(spec).expect("it comes up");
        assert_eq!(local.url(), format!("redis://127.0.0.1:{}", local.nodes()[0].port));
        send::<()>(&local, "a", &["SET", "1"]).expect("a write");
        local.kill("node-1").expect("a kill");
        assert_eq!(local.status().expect("a status").nodes[0].running, Running::Dead);
        local.kill("node-1").expect("killing the dead changes nothing");
        local.start("node-1").expect("a start");
        local.start("node-1").expect("starting what runs changes nothing");
        assert_eq!(send::<i64>(&local, "a", &["GET"]).expect("a read"), 1, "{flavour}");
        down(local);
    }
}

#[test]
fn replicas_follow_and_a_stopped_one_falls_behind() {
    for flavour in FLAVOURS {
        let local = up(flavour, Topology::Replicas { replicas: 2 });
        local.pause("node-3").expect("a stop");
        assert_eq!(local.status().expect("a status").nodes[2].running, Running::Stopped);
        let mut primary = connect(&local.nodes()[0]).expect("a connection");
        cmd("SET").arg("a").arg(1).query::<()>(&mut primary).expect("a write");
        // The other one has it, however busy the machine is; then nobody else gets it.
        let acknowledged: i64 = cmd("WAIT").arg(1).arg(30_000).query(&mut primary).expect("an answer");
        assert_eq!(acknowledged, 1, "{flavour}");
        let acknowledged: i64 = cmd("WAIT").arg(2).arg(300).query(&mut primary).expect("an answer");
        assert_eq!(acknowledged, 1, "{flavour}");
        assert_eq!(local.start("node-3").expect_err("it is stopped").kind(), Kind::Node);
        local.cont("node-3").expect("it continues");
        local.wait_ready().expect("it catches up");
        let mut replica = connect(node(&local, "node-3")).expect("a connection");
        wait_for("the replica has the write", || {
            cmd("GET").arg("a").query::<Option<i64>>(&mut replica).expect("a read")
        });
        let status = local.status().expect("a status");
        assert_eq!(status.nodes[2].primary.as_deref(), Some("node-1"));
        // Down works on what is stopped as well.
        local.pause("node-2").expect("a stop");
        down(local);
    }
}

#[test]
fn sentinel_promotes_a_replica() {
    for flavour in FLAVOURS {
        let local = up(flavour, Topology::Sentinel { replicas: 2 });
        assert!(local.url().starts_with("redis-sentinel://127.0.0.1:"), "{}", local.url());
        let mut primary = connect(&local.nodes()[0]).expect("a connection");
        cmd("SET").arg("a").arg(1).query::<()>(&mut primary).expect("a write");
        let acknowledged: i64 = cmd("WAIT").arg(2).arg(10_000).query(&mut primary).expect("an answer");
        assert_eq!(acknowledged, 2);
        local.kill("node-1").expect("a kill");
        let promoted = wait_for("a replica is promoted", || local.primaries().expect("a status").pop());
        assert_ne!(promoted.name, "node-1");
        local.wait_ready().expect("all follow the new primary");
        let mut primary = connect(&promoted).expect("a connection");
        assert_eq!(cmd("GET").arg("a").query::<i64>(&mut primary).expect("a read"), 1, "{flavour}");
        // What was primary comes back as a replica.
        local.start("node-1").expect("a start");
        local.wait_ready().expect("it follows");
        let status = local.status().expect("a status");
        assert_eq!((status.nodes[0].role, status.healthy), (Some(Role::Replica), true));
        down(local);
    }
}

#[test]
fn a_cluster_promotes_a_replica() {
    for flavour in FLAVOURS {
        let local = up(flavour, Topology::Cluster { masters: 3, replicas: 1 });
        assert!(local.url().starts_with("redis-cluster://127.0.0.1:"), "{}", local.url());
        let keys: Vec<_> = (0..100).map(|number| format!("key-{number}")).collect();
        for key in &keys {
            send::<()>(&local, key, &["SET", key]).expect("a write");
        }
        let status = local.status().expect("a status");
        assert_eq!(status.nodes.iter().map(|node| node.slots).sum::<usize>(), 16_384);
        assert_eq!(status.nodes[..3].iter().map(|node| node.keys).sum::<u64>(), 100);
        local.kill("node-2").expect("a kill");
        wait_for("its replica takes over", || {
            let primaries = local.primaries().expect("a status");
            primaries.iter().any(|node| node.name == "node-5").then_some(())
        });
        local.wait_ready().expect("all nodes learn of it");
        for key in &keys {
            assert_eq!(&send::<String>(&local, key, &["GET"]).expect("a read"), key, "{flavour}");
        }
        local.start("node-2").expect("a start");
        local.wait_ready().expect("it follows");
        assert_eq!(local.status().expect("a status").nodes[1].primary.as_deref(), Some("node-5"));
        down(local);
    }
}

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
    // In the middle of the first node's slots: "a" is slot 15495 on the second, "b" is 3300 on the first.
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

#[test]
fn a_password_is_asked_of_everybody() {
    for topology in [Topology::Sentinel { replicas: 1 }, Topology::Cluster { masters: 2, replicas: 1 }] {
        let spec = Spec { password: Some("pa:ss\"word".into()), ..Spec::new(topology) };
        let local = Local::up(spec).expect("it comes up");
        assert!(local.url().contains(":pa%3Ass%22word@"), "{}", local.url());
        let mut stranger = connect(&local.nodes()[0]).expect("a connection");
        let refused = cmd("GET").arg("a").query::<()>(&mut stranger).expect_err("refused");
        assert_eq!(refused.code(), Some("NOAUTH"));
        if topology.is_cluster() {
            local.reshard("node-1", "node-2", 3, |_| {}).expect("slots move");
        }
        down(local);
    }
}

fn primary_names(local: &Local) -> Vec<String> {
    local.primaries().expect("a status").into_iter().map(|node| node.name).collect()
}

/// Also one that keeps nothing on disk otherwise, and one whose primary is not the first node any more.
#[test]
fn a_halted_topology_resumes_with_its_data_and_its_primaries() {
    let sentinel = Topology::Sentinel { replicas: 1 };
    let cluster = Topology::Cluster { masters: 3, replicas: 1 };
    for (flavour, topology, persistence) in [
        (Flavour::Redis, Topology::Single, Persistence::None),
        (Flavour::Valkey, Topology::Replicas { replicas: 1 }, Persistence::None),
        (Flavour::Redis, sentinel, Persistence::EverySecond),
        (Flavour::Valkey, cluster, Persistence::EverySecond),
    ] {
        let local = Local::up(Spec::new(topology).on(flavour).keep(persistence)).expect("it comes up");
        if topology == sentinel || topology == cluster {
            local.kill("node-1").expect("a kill");
            let count = if topology == cluster { 3 } else { 1 };
            wait_for("another is promoted", || (primary_names(&local).len() == count).then_some(()));
            local.start("node-1").expect("a start");
            local.wait_ready().expect("it follows");
        }
        for number in 0..50 {
            send_to_primary::<()>(&local, &format!("key-{number}"), &["SET", &number.to_string()]);
        }
        let before = primary_names(&local);
        local.halt().expect("it is halted");
        assert_eq!(processes_naming(local.folder()), Vec::<String>::new());
        let status = local.status().expect("a status");
        assert!(status.nodes.iter().all(|node| node.running == Running::Dead), "{status:#?}");
        local.halt().expect("halting again changes nothing");
        local.resume().expect("it is resumed");
        assert!(local.status().expect("a status").healthy);
        assert_eq!(primary_names(&local), before, "{flavour} {topology}");
        for number in 0..50 {
            let read: i64 = send_to_primary(&local, &format!("key-{number}"), &["GET"]);
            assert_eq!(read, number, "{flavour} {topology}");
        }
        local.resume().expect("resuming what runs changes nothing");
        down(local);
    }
}

#[test]
fn what_cannot_be_halted_or_resumed_is_named_and_nothing_is_changed() {
    let local = up(Flavour::Redis, Topology::Replicas { replicas: 1 });
    local.pause("node-2").expect("a stop");
    for error in [local.halt().expect_err("refused"), local.resume().expect_err("refused")] {
        assert!(error.kind() == Kind::Node && error.to_string().contains("node-2 is stopped"), "{error}");
    }
    assert_eq!(processes_naming(local.folder()).len(), 2);
    local.cont("node-2").expect("it continues");
    local.halt().expect("it is halted");
    let port = node(&local, "node-2").port;
    let held = TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    let error = local.resume().expect_err("refused");
    assert_eq!(error.kind(), Kind::PortInUse { port }, "{error}");
    assert!(error.to_string().contains("node-2"), "{error}");
    assert_eq!(processes_naming(local.folder()), Vec::<String>::new());
    drop(held);
    local.resume().expect("it is resumed");
    local.halt().expect("it is halted");
    down(local);
}

fn refused(spec: Spec) -> Error {
    Local::up(spec).expect_err("it must be refused")
}

#[test]
fn a_port_in_use_is_named_and_nothing_is_left() {
    let scratch = tempfile::tempdir().expect("a folder");
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = held.local_addr().expect("an address").port();
    let folder = scratch.path().join("one");
    let spec = Spec { port: Some(port), folder: Some(folder.clone()), ..Spec::new(Topology::Single) };
    let error = refused(spec);
    assert_eq!(error.kind(), Kind::PortInUse { port }, "{error}");
    assert!(!folder.exists());
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let scratch = tempfile::tempdir().expect("a folder");
    let spec = || Spec { folder: Some(scratch.path().join("one")), ..Spec::new(Topology::Single) };
    let first = Local::up(spec()).expect("it comes up");
    let error = refused(spec());
    assert_eq!(error.kind(), Kind::FolderInUse, "{error}");
    assert!(first.status().expect("a status").healthy);
    drop(first);
    assert!(!scratch.path().join("one").exists(), "dropped, it goes down");

    let own = scratch.path().join("own");
    fs::create_dir(&own).expect("a folder");
    fs::write(own.join("thesis.txt"), "two years").expect("a file");
    let error = refused(Spec { folder: Some(own.clone()), ..Spec::new(Topology::Single) });
    assert_eq!(error.kind(), Kind::FolderInUse, "{error}");
    assert_eq!(forebay_topology::down(&own).expect_err("not ours").kind(), Kind::NotATopology);
    assert!(own.join("thesis.txt").exists());
}

#[test]
fn down_finds_what_another_process_left() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("left behind");
    let topology = Topology::Cluster { masters: 3, replicas: 0 };
    let spec = Spec { detached: true, folder: Some(folder.clone()), ..Spec::new(topology) };
    drop(Local::up(spec).expect("it comes up"));
    let opened = Local::open(&folder).expect("it is still there");
    assert!(opened.status().expect("a status").healthy);
    opened.kill("node-2").expect("a kill");
    opened.pause("node-3").expect("a stop");
    drop(opened);
    assert_eq!(processes_naming(&folder).len(), 2);
    // Somebody's file in the folder stays, and the folder with it.
    fs::write(folder.join("notes.txt"), "mine").expect("a file");
    assert!(forebay_topology::down(&folder).expect("it is taken down"));
    assert_eq!(processes_naming(&folder), Vec::<String>::new());
    let left: Vec<_> =
        fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
    fs::remove_file(folder.join("notes.txt")).expect("removed");
    fs::remove_dir(&folder).expect("removed");
    assert!(!forebay_topology::down(&folder).expect("nothing to do"), "there was nothing");
}

#[test]
fn an_up_that_fails_leaves_nothing() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("one");
    let topology = Topology::Cluster { masters: 3, replicas: 0 };
    let spec = Spec { folder: Some(folder.clone()), ..Spec::new(topology) }.directive("no-such-directive 1");
    let error = refused(spec);
    assert_eq!(error.kind(), Kind::Start, "{error}");
    assert!(error.to_string().contains("no-such-directive"), "the server's own words: {error}");
    assert!(!folder.exists());

    let spec = Spec {
        folder: Some(folder.clone()),
        cancel: Some(Arc::new(AtomicBool::new(true))),
        ..Spec::new(topology)
    };
    assert_eq!(refused(spec).kind(), Kind::Cancelled);
    assert!(!folder.exists());
    assert_eq!(processes_naming(&folder), Vec::<String>::new());
}

#[test]
fn what_contradicts_itself_is_refused() {
    for topology in [
        Topology::Replicas { replicas: 0 },
        Topology::Sentinel { replicas: 0 },
        Topology::Cluster { masters: 0, replicas: 1 },
        Topology::Cluster { masters: 150, replicas: 1 },
        Topology::Cluster { masters: usize::MAX, replicas: 1 },
    ] {
        assert_eq!(refused(Spec::new(topology)).kind(), Kind::Spec, "{topology}");
    }
    let spec = Spec { password: Some("two words".into()), ..Spec::new(Topology::Single) };
    assert_eq!(refused(spec).kind(), Kind::Spec);
    let local = Local::up(Spec::new(Topology::Single)).expect("it comes up");
    let error = local.kill("nod-1").expect_err("no such node");
    assert!(error.kind() == Kind::Node && error.to_string().contains("did you mean node-1?"), "{error}");
    assert_eq!(local.reshard("node-1", "node-1", 1, |_| {}).expect_err("no cluster").kind(), Kind::Node);
}

/// The environment belongs to the whole process: what depends on it runs in a process of its own.
#[test]
fn a_missing_server_says_what_to_install() {
    if std::env::var_os("FOREBAY_TEST_MISSING").is_some() {
        for flavour in [None, Some(Flavour::Redis), Some(Flavour::Valkey)] {
            let error = refused(Spec { flavour, ..Spec::new(Topology::Single) });
            println!("{:?}: {error}", error.kind());
        }
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let not_a_server = scratch.path().join("server");
    fs::write(&not_a_server, "#!/bin/sh\necho hello\n").expect("a file");
    let run = |variables: &[(&str, PathBuf)]| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "a_missing_server_says_what_to_install", "--nocapture"]);
        command.env_clear().env("FOREBAY_TEST_MISSING", "1").env("PATH", scratch.path());
        let output =
            command.envs(variables.iter().map(|(name, value)| (name, value))).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("a text")
    };
    let missing = run(&[]);
    assert!(missing.contains("no valkey-server and no redis-server on the path. Install"), "{missing}");
    assert!(missing.contains("apt-get install redis-server"), "{missing}");
    assert!(missing.contains("FOREBAY_VALKEY_SERVER"), "{missing}");
    let gone = run(&[("FOREBAY_VALKEY_SERVER", scratch.path().join("gone"))]);
    assert!(gone.contains("gone, which is not there"), "{gone}");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&not_a_server, fs::Permissions::from_mode(0o755)).expect("permissions");
    let hello = run(&[("FOREBAY_VALKEY_SERVER", not_a_server)]);
    assert!(hello.contains("is no Redis or Valkey server"), "{hello}");
}

#[test]
fn fifteen_primaries_with_a_replica_each() {
    for flavour in FLAVOURS {
        let began = Instant::now();
        let local = up(flavour, Topology::Cluster { masters: 15, replicas: 1 });
        println!("{flavour}: 15 + 15 nodes ready after {:.1?}", began.elapsed());
        assert_eq!(local.nodes().iter().filter(|node| node.kind == NodeKind::Server).count(), 30);
        send::<()>(&local, "a", &["SET", "1"]).expect("a write");
        down(local);
    }
}
