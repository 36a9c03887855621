//! A disk that is full, and a folder that cannot be written.

use crate::{assert_readable, insert, start, write_some};
use forebay_tests::{Folder, Mount, Start, am_root};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;

const MIB: u64 = 1 << 20;

/// A token that fills a disk quickly.
fn long_token(i: usize) -> String {
    format!("{i}-{}", "x".repeat(20_000))
}

/// Writes until the server refuses. Returns the accepted rows, and whether the server reported the full
/// disk (or was gone).
fn fill(server: &forebay_tests::Server) -> (Vec<super::Written>, bool) {
    let mut client = server.client();
    let mut written = Vec::new();
    for i in 0..5000 {
        let body = format!("{{\"token\":\"{}\"}}", long_token(i));
        match client.call("POST", "/uuids", &[], Some(&body)) {
            Ok(answer) if answer.status == 201 => {
                let row = answer.json();
                let id = row["id"].as_str().expect("an id").to_owned();
                written.push(super::Written { target: format!("/uuids/{id}"), row });
            }
            Ok(answer) => {
                answer.expect_problem(503, "");
                let again = answer.header("retry-after").and_then(|seconds| seconds.parse::<u32>().ok());
                assert!(again.is_some(), "no Retry-After: {answer:?}");
                return (written, true);
            }
            Err(error) => {
                let kind = error.kind();
                assert!(
                    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset),
                    "{error}"
                );
                return (written, false);
            }
        }
    }
    panic!("100 MB fit on a disk of 8 MB");
}

/// Small segments, so that a small disk holds several, and a paused drain that frees no space.
fn small(folder: &Folder) -> Start {
    start(folder).set("drain.paused=true").set("memory.segment=1MiB")
}

#[test]
fn a_full_disk_refuses_and_keeps() {
    let folder = Folder::new();
    fs::create_dir(folder.data()).expect("a folder can be made");
    let Ok(mount) = Mount::tmpfs(&folder.data(), 8 * MIB) else {
        return file_size_limit(&folder);
    };
    let server = small(&folder).start();
    let (written, refused) = fill(&server);
    assert!(written.len() > 100, "only {} rows fit", written.len());
    assert!(refused, "a full disk is told, not a reason to close connections\n{}", server.output());
    // Reads and SQL continue to work: only the log is full.
    assert_readable(&mut server.client(), &written);
    server.kill();
    // Still full: it starts and serves, or says why not.
    match small(&folder).try_start() {
        Ok(server) => {
            assert_readable(&mut server.client(), &written);
            // Space is freed, and writes are accepted again without a restart.
            mount.resize(512 * MIB).expect("a tmpfs can grow");
            let more = forebay_tests::wait_for("writes are taken again", || {
                let body = "{\"token\":\"again\"}";
                let answer = server.client().post_json("/uuids", body);
                (answer.status == 201).then_some(answer)
            });
            assert_eq!(more.json()["token"], "again");
        }
        Err(ended) => {
            let says = ended.output.contains("space") || ended.output.contains("full");
            assert!(says, "the message does not name the disk: {ended:?}");
            mount.resize(512 * MIB).expect("a tmpfs can grow");
        }
    }
    let server = small(&folder).start();
    assert_readable(&mut server.client(), &written);
    write_some(&mut server.client(), "after", 5);
    server.drain();
    let rows = forebay_tests::Database::open(&folder.database())
        .number("SELECT count(*) FROM uuids WHERE token LIKE '%xxx'", []);
    // A refused row may have been written before the disk was full, but never an incomplete one.
    assert!(rows >= written.len() as i64, "{rows} of {} rows in SQLite", written.len());
}

/// Makes checkpoints fail: the disk is full, or, without the right to mount one, a folder stands in place
/// of the checkpoint's file.
struct NoRoom {
    stands_in: std::path::PathBuf,
    mount: Option<Mount>,
}

impl NoRoom {
    fn prepare(folder: &Folder) -> NoRoom {
        fs::create_dir(folder.data()).expect("a folder can be made");
        let mount = am_root().then(|| Mount::tmpfs(&folder.data(), 32 * MIB).expect("root may mount"));
        let name = if mount.is_some() { "filler" } else { "checkpoint.new" };
        NoRoom { stands_in: folder.data().join(name), mount }
    }

    fn take(&self) {
        if self.mount.is_some() {
            let mut filler = fs::File::create(&self.stands_in).expect("a file can be made");
            let full = io::copy(&mut io::repeat(1).take(1 << 30), &mut filler).expect_err("32 MiB are full");
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        } else {
            fs::create_dir(&self.stands_in).expect("a folder can be made");
        }
    }

    fn give(&self) {
        let given = if self.mount.is_some() {
            fs::remove_file(&self.stands_in)
        } else {
            fs::remove_dir(&self.stands_in)
        };
        given.expect("it can be removed");
    }
}

#[test]
fn a_full_disk_fails_a_checkpoint_until_there_is_room() {
    let folder = Folder::new();
    let no_room = NoRoom::prepare(&folder);
    let server = small(&folder).start();
    let written = write_some(&mut server.client(), "kept", 20);
    no_room.take();
    server.admin("POST", "/checkpoint").expect_problem(503, "cannot write");
    server.wait_for_output("no checkpoint of memory could be written");
    let is_told = || server.admin("GET", "/ready").text().contains("checkpoint failed");
    forebay_tests::wait_for("it is told", || is_told().then_some(()));
    assert_readable(&mut server.client(), &written);
    no_room.give();
    // The checkpoint is retried without a request.
    forebay_tests::wait_for("a checkpoint is there", || (!is_told()).then_some(()));
    assert!(folder.data().join("checkpoint").exists());
    server.kill();
    assert_readable(&mut small(&folder).start().client(), &written);
}

/// Without the right to mount: no file may grow beyond a limit. The kernel then fails the write or ends the
/// process; in both cases no acknowledged write may be lost.
fn file_size_limit(folder: &Folder) {
    let server = small(folder).start();
    let kept = write_some(&mut server.client(), "before", 10);
    server.kill();
    let Ok(server) = small(folder).file_size_limit(MIB / 2).try_start() else {
        let server = small(folder).start();
        return assert_readable(&mut server.client(), &kept);
    };
    let (written, _) = fill(&server);
    drop(server);
    let server = small(folder).start();
    assert_readable(&mut server.client(), &kept);
    assert_readable(&mut server.client(), &written);
}

/// Makes a folder read-only while the guard exists: by a mount for root, whom permissions do not stop,
/// otherwise by permissions.
enum ReadOnly {
    Mounted(Mount),
    Permissions(std::path::PathBuf),
}

impl ReadOnly {
    fn prepare(folder: &std::path::Path) -> ReadOnly {
        fs::create_dir_all(folder).expect("a folder can be made");
        match am_root() {
            true => ReadOnly::Mounted(Mount::tmpfs(folder, 512 * MIB).expect("root may mount")),
            false => ReadOnly::Permissions(folder.to_owned()),
        }
    }

    fn close(&self) {
        match self {
            ReadOnly::Mounted(mount) => mount.make_read_only().expect("a tmpfs can be made read-only"),
            ReadOnly::Permissions(folder) => set_mode(folder, 0o555),
        }
    }

    fn open(&self) {
        match self {
            ReadOnly::Mounted(mount) => mount.resize(512 * MIB).expect("a tmpfs can be made writable"),
            ReadOnly::Permissions(folder) => set_mode(folder, 0o755),
        }
    }
}

fn set_mode(folder: &std::path::Path, mode: u32) {
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("permissions can be set");
}

#[track_caller]
fn assert_refused(started: Result<forebay_tests::Server, forebay_tests::Ended>, path: &std::path::Path) {
    let Err(ended) = started else { panic!("it starts in a folder that cannot be written") };
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.status.code().is_some(), "it ends by itself: {ended:?}");
    assert!(ended.output.contains(&path.display().to_string()), "the folder is not named: {ended:?}");
    assert!(!ended.output.contains("panicked"), "{ended:?}");
}

#[test]
fn a_read_only_data_folder_is_named() {
    let folder = Folder::new();
    let lock = ReadOnly::prepare(&folder.data());
    lock.close();
    assert_refused(start(&folder).try_start(), &folder.data());
    lock.open();
    let server = start(&folder).set("drain.paused=true").start();
    let written = write_some(&mut server.client(), "kept", 5);
    server.kill();
    lock.close();
    assert_refused(start(&folder).try_start(), &folder.data());
    lock.open();
    let server = start(&folder).start();
    assert_readable(&mut server.client(), &written);
}

#[test]
fn a_read_only_record_store_is_named() {
    let folder = Folder::new();
    let place = folder.path().join("store");
    let lock = ReadOnly::prepare(&place);
    let url = format!("sqlite:{}", place.join("database.db").display());
    lock.close();
    assert_refused(start(&folder).database(&url).try_start(), &place);
    lock.open();
    let server = start(&folder).database(&url).start();
    insert(&mut server.client(), "serials", "one");
    server.drain();
}
