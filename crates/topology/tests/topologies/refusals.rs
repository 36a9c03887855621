//! What cannot be brought up, halted or resumed, and what such an attempt leaves behind.

use super::{down, node, processes_naming, up};
use forebay_topology::{Error, Flavour, Kind, Local, Spec, Topology};
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    // A foreign file in the folder is not removed, and neither is the folder.
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

/// The environment belongs to the whole process: a test that depends on it runs in a separate process.
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
        command.args(["--exact", "refusals::a_missing_server_says_what_to_install", "--nocapture"]);
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
fn what_cannot_be_halted_or_resumed_is_named_and_nothing_is_changed() {
    let local = up(Flavour::Redis, Topology::Replicas { replicas: 1 });
    local.pause("node-2").expect("a stop");
    for error in [local.halt().expect_err("refused"), local.resume().expect_err("refused")] {
        assert!(error.kind() == Kind::Node && error.to_string().contains("node-2 is stopped"), "{error}");
    }
    assert_eq!(processes_naming(local.folder()).len(), 2);
    local.resume_node("node-2").expect("it continues");
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
