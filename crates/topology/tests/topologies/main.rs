//! Every topology with the installed servers, as real processes: up, status, write and read, a dead primary,
//! down.

mod refusals;
mod resharding;

use forebay_topology::{Flavour, Kind, Local, Node, NodeKind, Persistence, Role, Running, Spec, Topology};
use redis::{Connection, RedisResult, cmd};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Every flavour must be installed: `scripts/services env` prints the paths.
const FLAVOURS: [Flavour; 2] = [Flavour::Redis, Flavour::Valkey];

/// A failover takes seconds, on a loaded machine longer.
const PATIENCE: Duration = Duration::from_secs(90);

fn connect(node: &Node) -> RedisResult<Connection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", node.port))?;
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

fn node<'a>(local: &'a Local, name: &str) -> &'a Node {
    local.nodes().iter().find(|node| node.name == name).expect("a node of that name")
}

/// Repeats the attempt until it returns a value.
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

/// The command lines that name this folder.
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

/// Sends one command to the owner of the key, following the redirections of a cluster.
fn send<T: redis::FromRedisValue>(local: &Local, key: &str, words: &[&str]) -> RedisResult<T> {
    send_from(&local.nodes()[0], local, key, words)
}

/// As `send`, beginning with a node that is a primary now.
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
        // The other replica has the write, however loaded the machine is; then no other node gets it.
        let acknowledged: i64 = cmd("WAIT").arg(1).arg(30_000).query(&mut primary).expect("an answer");
        assert_eq!(acknowledged, 1, "{flavour}");
        let acknowledged: i64 = cmd("WAIT").arg(2).arg(300).query(&mut primary).expect("an answer");
        assert_eq!(acknowledged, 1, "{flavour}");
        assert_eq!(local.start("node-3").expect_err("it is stopped").kind(), Kind::Node);
        local.resume_node("node-3").expect("it continues");
        local.wait_ready().expect("it catches up");
        let mut replica = connect(node(&local, "node-3")).expect("a connection");
        wait_for("the replica has the write", || {
            cmd("GET").arg("a").query::<Option<i64>>(&mut replica).expect("a read")
        });
        let status = local.status().expect("a status");
        assert_eq!(status.nodes[2].primary.as_deref(), Some("node-1"));
        // `down` also works on stopped nodes.
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
        let acknowledged: i64 = cmd("WAIT").arg(2).arg(30_000).query(&mut primary).expect("an answer");
        assert_eq!(acknowledged, 2);
        local.kill("node-1").expect("a kill");
        let promoted = wait_for("a replica is promoted", || local.primaries().expect("a status").pop());
        assert_ne!(promoted.name, "node-1");
        local.wait_ready().expect("all follow the new primary");
        let mut primary = connect(&promoted).expect("a connection");
        assert_eq!(cmd("GET").arg("a").query::<i64>(&mut primary).expect("a read"), 1, "{flavour}");
        // The former primary comes back as a replica.
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

/// This includes a node that stores nothing on disk otherwise, and one whose primary is no longer the first
/// node.
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
