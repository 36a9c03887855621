//! Load for real Redis servers: the server's counts, sizes, logins, TLS, replicas, and a cluster whose
//! slots move during the load.

use crate::{ended, forebay, shown};
use ::redis::{Client, Connection, FromRedisValue, cmd};
use forebay_topology::{Flavour, Local, Node, Spec, Topology};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn up(topology: Topology) -> Local {
    Local::up(Spec::new(topology)).expect("redis-server is installed")
}

/// The URL of the topology, by one of its nodes; `login` ends with `@`.
fn url(local: &Local, login: &str) -> String {
    let scheme = if local.topology().is_cluster() { "redis-cluster" } else { "redis" };
    format!("{scheme}://{login}{}", local.nodes()[0].address())
}

fn cluster(masters: usize, replicas: usize) -> Local {
    up(Topology::Cluster { masters, replicas })
}

#[track_caller]
fn ask<T: FromRedisValue>(local: &Local, node: &Node, words: &[&str]) -> T {
    let password = local.password().map_or(String::new(), |password| format!(":{password}@"));
    let client = Client::open(format!("redis://{password}{}", node.address())).expect("an address");
    let mut connection: Connection = client.get_connection().expect("it answers");
    let mut command = cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query(&mut connection).expect("the command works")
}

/// How often each node has executed a command.
fn calls(local: &Local, nodes: &[&Node], command: &str) -> Vec<u64> {
    let count = |node: &&Node| {
        let stats: String = ask(local, node, &["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    nodes.iter().map(count).collect()
}

fn by_role(local: &Local) -> (Vec<&Node>, Vec<&Node>) {
    local.nodes().iter().partition(|node| node.replica_of.is_none())
}

#[track_caller]
fn until(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < Duration::from_secs(60), "never {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a load, which must succeed.
#[track_caller]
fn load(arguments: &[&str]) -> Value {
    let (code, out, error) = ended(&[&["load", "--json", "-"], arguments].concat());
    assert_eq!(code, 0, "{error}");
    serde_json::from_str(&out).expect("JSON")
}

#[track_caller]
fn status(json: &Value, status: &str) -> u64 {
    json["statuses"][status].as_u64().unwrap_or(0)
}

#[test]
fn ratio_and_sizes_are_what_the_server_counts() {
    let local = up(Topology::Single);
    let sizes = ["--ratio", "1:10", "--data-size", "500", "--key-maximum", "1000", "--key", "cart:%:items"];
    let run = ["-a", "11000", "-c", "4", "-p", "100", "-w", "1", &url(&local, "")];
    let json = load(&[&run[..], &sizes].concat());
    let (nodes, _) = by_role(&local);
    assert_eq!((calls(&local, &nodes, "set")[0], calls(&local, &nodes, "get")[0]), (1000, 10_000));
    assert_eq!(json["endpoints"][0]["requests"]["completed"], 1000);
    assert_eq!(json["endpoints"][1]["requests"]["completed"], 10_000);
    assert_eq!(json["requests"]["unexpected"], 0);
    let key: String = ask(&local, nodes[0], &["RANDOMKEY"]);
    assert!(key.starts_with("cart:") && key.ends_with(":items"), "{key}");
    assert_eq!(ask::<u64>(&local, nodes[0], &["STRLEN", &key]), 500);
}

#[test]
fn every_key_of_a_cluster_goes_to_its_master() {
    let local = cluster(3, 0);
    // Each key contains a hash tag: a client that hashed the whole key would get MOVED.
    let run =
        ["-a", "4400", "-c", "7", "-p", "5", "-w", "2", "--ratio", "1:3", "--key", "a{%}b", &url(&local, "")];
    let json = load(&run);
    assert_eq!(json["statuses"]["301"], Value::Null, "{}", json["statuses"]);
    assert_eq!(json["requests"]["completed"], 4400);
    let (nodes, _) = by_role(&local);
    let (sets, gets) = (calls(&local, &nodes, "set"), calls(&local, &nodes, "get"));
    assert_eq!((sets.iter().sum::<u64>(), gets.iter().sum::<u64>()), (1100, 3300));
    assert!(sets.iter().chain(&gets).all(|count| *count > 0), "every master: {sets:?} {gets:?}");
    let (code, _, error) = ended(&["load", "-c", "2", &url(&local, "")]);
    assert!(code == 1 && error.contains("-c 3"), "{error}");
}

#[test]
fn slots_that_move_are_followed() {
    let local = cluster(3, 0);
    let url = url(&local, "");
    let run =
        ["-R", "2000", "-d", "6s", "-c", "3", "-w", "1", "--ratio", "0:1", "--key-maximum", "2000", &url];
    let child = forebay(&[&["load", "--json", "-"], &run[..]].concat()).spawn().expect("it runs");
    let (nodes, _) = by_role(&local);
    until("a request", || calls(&local, &nodes, "get")[0] > 0);
    let began = Instant::now();
    // A hundred slots contain a dozen of the 2000 keys, each of which is requested about once a
    // second.
    local.reshard(&nodes[0].name, &nodes[1].name, 100, |_| {}).expect("slots move");
    let moving = began.elapsed();
    let (code, out, error) = shown(child.wait_with_output().expect("it ends"));
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let (moved, asked) = (status(&json, "301"), status(&json, "302"));
    // If the load did not follow the slots, a dozen commands a second would be redirected until the
    // end of the run.
    assert!((1..=40).contains(&moved) || moving > Duration::from_secs(4), "{moving:?}: {}", json["statuses"]);
    assert_eq!(
        status(&json, "404") + moved + asked,
        json["requests"]["completed"].as_u64().expect("a number")
    );
    assert_eq!(json["requests"]["unexpected"].as_u64(), Some(moved + asked), "{}", json["statuses"]);
}

#[test]
fn keys_of_a_slot_that_moves_are_asked_for_where_they_are() {
    let local = cluster(3, 0);
    let (nodes, _) = by_role(&local);
    let url = url(&local, "");
    // All keys are in one slot: the load learns by one MOVED each that the other two nodes have
    // none.
    let tagged = ["-c", "3", "-w", "1", "--key", "{user}:%", "--key-maximum", "50", &url];
    let filled = load(&[&["-a", "1000", "--ratio", "1:0"], &tagged[..]].concat());
    assert!(status(&filled, "301") <= 2, "{}", filled["statuses"]);
    let slot: u64 = ask(&local, nodes[0], &["CLUSTER", "KEYSLOT", "{user}:1"]);
    let slot = u16::try_from(slot).expect("a slot");
    let count = |node: &&&Node| ask::<u64>(&local, node, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]);
    let source = *nodes.iter().find(|node| count(node) == 50).expect("one has all 50 keys");
    let target = *nodes.iter().find(|node| node.name != source.name).expect("another one");
    local.begin_slot(slot, &source.name, &target.name).expect("half-way");
    while local.move_keys(slot, &source.name, &target.name, 100).expect("keys move") > 0 {}
    let before = calls(&local, &[target], "get")[0];
    let read = load(&[&["-a", "1000", "--ratio", "0:1"], &tagged[..]].concat());
    let (found, asked, moved) = (status(&read, "200"), status(&read, "302"), status(&read, "301"));
    // Every GET finds its value through ASK, because the source has none of the keys. The last
    // redirected commands are not sent again; their number depends on the speeds of source and target.
    assert_eq!((found + asked + moved, status(&read, "404")), (1000, 0), "{}", read["statuses"]);
    assert!(found > 0 && asked >= found && moved <= 2, "{}", read["statuses"]);
    assert_eq!(calls(&local, &[target], "get")[0] - before, found, "the target's own count");
    // The same for SETs, whose reply is the same as that of ASKING.
    let written = load(&[&["-a", "1000", "--ratio", "1:0"], &tagged[..]].concat());
    assert!(status(&written, "200") > 0 && status(&written, "302") > 0, "{}", written["statuses"]);
    local.finish_slot(slot, &source.name, &target.name).expect("it is the target's");
    let after = load(&[&["-a", "1000", "--ratio", "0:1"], &tagged[..]].concat());
    assert!(status(&after, "302") == 0 && status(&after, "200") >= 998, "{}", after["statuses"]);
}

#[test]
fn reads_go_to_replicas() {
    let clusters = cluster(3, 1);
    let one = up(Topology::Replicas { replicas: 2 });
    for local in [&clusters, &one] {
        let (masters, replicas) = by_role(local);
        for pace in [&["-a", "4000"][..], &["-a", "4000", "-R", "8000"]] {
            let count = |nodes: &[&Node], command| calls(local, nodes, command).iter().sum::<u64>();
            let before = (count(&masters, "set"), count(&replicas, "get"));
            let run = ["-c", "12", "-w", "2", "--ratio", "1:3", "--read-from", "replicas", &url(local, "")];
            let json = load(&[&run[..], pace].concat());
            assert_eq!(json["requests"]["completed"], 4000, "{}", json["requests"]);
            assert_eq!(json["requests"]["unexpected"], 0, "{}", json["statuses"]);
            let after = (count(&masters, "set"), count(&replicas, "get"));
            assert_eq!((after.0 - before.0, after.1 - before.1), (1000, 3000));
            assert_eq!(count(&masters, "get"), 0);
            assert!(calls(local, &replicas, "get").iter().all(|count| *count > 0), "every replica");
        }
    }
    // A load without SETs needs no connections to masters.
    let (place, (_, replicas)) = (url(&clusters, ""), by_role(&clusters));
    let run = ["-c", "3", "-w", "1", "-a", "300", "--ratio", "0:1", "--read-from", "replicas", &place];
    assert_eq!(load(&run)["requests"]["unexpected"], 0);
    let (replica, single) = (format!("redis://{}", replicas[0].address()), up(Topology::Single));
    for (target, why) in [(replica, "name the primary"), (url(&single, ""), "has no replica")] {
        let (code, _, error) = ended(&["load", "-a", "10", "--read-from", "replicas", &target]);
        assert!(code == 1 && error.contains(why), "{error}");
    }
}

#[test]
fn logins() {
    let mut spec = Spec::new(Topology::Cluster { masters: 3, replicas: 0 });
    spec.password = Some("se:cr@et".into());
    let local =
        Local::up(spec.directive("user loader on >xyzzy9 ~* +@all")).expect("redis-server is installed");
    let at = |login: &str| url(&local, login);
    for login in [":se%3Acr%40et@", "default:se%3Acr%40et@", "loader:xyzzy9@"] {
        let (code, out, error) =
            ended(&["load", "-a", "300", "-c", "3", "-w", "1", "--json", "-", &at(login)]);
        assert_eq!(code, 0, "{error}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(
            (&json["requests"]["completed"], &json["requests"]["unexpected"]),
            (&300.into(), &0.into())
        );
        let secrets = ["cr%40et", "cr@et", "xyzzy9"];
        assert!(secrets.iter().all(|secret| !out.contains(secret)), "the password stands in a report: {out}");
    }
    for (login, why) in [("", "wants a password"), (":wrong@", "WRONGPASS"), ("nobody:xyzzy9@", "WRONGPASS")]
    {
        let (code, _, error) = ended(&["load", "-a", "300", "-c", "3", &at(login)]);
        let sentences: Vec<_> = error.lines().filter(|line| line.starts_with("forebay: ")).collect();
        assert!(code == 1 && sentences.len() == 1 && sentences[0].contains(why), "{login}: {error}");
    }
    let (code, _, error) = ended(&["load", &at("password@")]);
    assert!(code == 2 && error.contains(":password@") && error.lines().count() == 1, "{error}");
}

/// A self-signed certificate of 127.0.0.1.
fn certificate(folder: &Path) -> [String; 2] {
    let [key, own] = ["key.pem", "own.pem"].map(|name| folder.join(name).display().to_string());
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=forebay", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &own])
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    [key, own]
}

#[test]
fn by_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let [key, own] = certificate(folder.path());
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    // Not every build of Valkey has TLS; Debian's Redis does.
    let mut spec = Spec::new(Topology::Single).on(Flavour::Redis);
    spec.password = Some("secret".into());
    let spec = [
        format!("tls-port {port}"),
        format!("tls-cert-file {own}"),
        format!("tls-key-file {key}"),
        format!("tls-ca-cert-file {own}"),
        "tls-auth-clients no".to_owned(),
    ]
    .into_iter()
    .fold(spec, Spec::directive);
    let local = Local::up(spec).expect("redis-server is built with TLS");
    let run = |more: &[&str], roots: &str| {
        let url = format!("rediss://:secret@127.0.0.1:{port}");
        let how = ["load", "-a", "1100", "-c", "4", "-p", "10", "-w", "1", "--json", "-", &url];
        let mut command = forebay(&[&how[..], more].concat());
        shown(command.env("SSL_CERT_FILE", roots).output().expect("the binary runs"))
    };
    let (nodes, _) = by_role(&local);
    for (turn, (more, roots)) in
        [(&[][..], own.as_str()), (&["-k"], "/etc/ssl/certs/ca-certificates.crt")].iter().enumerate()
    {
        let (code, out, error) = run(more, roots);
        assert_eq!(code, 0, "{error}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(
            (&json["requests"]["completed"], &json["requests"]["unexpected"]),
            (&1100.into(), &0.into())
        );
        assert!(
            json["target"].as_str().is_some_and(|target| target.starts_with("rediss://127")),
            "{}",
            json["target"]
        );
        assert_eq!(calls(&local, &nodes, "get")[0], 1000 * (turn as u64 + 1));
    }
    // A certificate of another authority is not trusted.
    let other = tempfile::tempdir().expect("a folder");
    let [_, roots] = certificate(other.path());
    let (code, _, error) = run(&[], &roots);
    assert!(code == 1 && error.contains("certificate"), "{error}");
}
