//! `files`: a folder, its spellings, parts and forms; and a server without stores.

use super::Front;
use forebay_tests::{Answer, Client, Folder, binary};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

/// Longer than one read.
const LONG_BYTES: usize = 3_000_017;

fn get(client: &mut Client, target: &str, headers: &[(&str, &str)]) -> Answer {
    client.call("GET", target, headers, None).expect("an answer")
}

fn long() -> Vec<u8> {
    (0..LONG_BYTES).map(|i| (i % 251) as u8).collect()
}

/// A folder `public`, with a file beside it that must not be served.
fn public(folder: &Folder) -> String {
    let root = folder.path().join("public");
    std::fs::create_dir_all(root.join("docs/empty")).expect("a folder");
    std::fs::create_dir_all(root.join(".git")).expect("a folder");
    std::fs::write(folder.path().join("secret"), "secret").expect("a file");
    for (name, text) in [
        ("index.html", "<p>home</p>"),
        ("docs/index.html", "<p>docs</p>"),
        ("docs/a b.txt", "with a space"),
        ("app.js", "let plain = 1"),
        ("app.js.gz", "gzipped"),
        ("app.js.zst", "zstandard"),
        ("old.css", "new"),
        (".env", "secret"),
        (".git/config", "secret"),
        ("nothing.bin", ""),
    ] {
        std::fs::write(root.join(name), text).expect("a file");
    }
    std::fs::write(root.join("long.bin"), long()).expect("a file");
    std::fs::write(root.join("old.css.gz"), "old").expect("a file");
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let old = std::fs::File::options().write(true).open(root.join("old.css.gz")).expect("a file");
    old.set_modified(hour_ago).expect("its time can be set");
    symlink("../secret", root.join("out.txt")).expect("a link");
    symlink(folder.path().join("secret"), root.join("absolute.txt")).expect("a link");
    symlink("..", root.join("up")).expect("a link");
    symlink("docs/a b.txt", root.join("within.txt")).expect("a link");
    symlink("loop", root.join("loop")).expect("a link");
    let pipe = Command::new("mkfifo").arg(root.join("pipe")).status().expect("mkfifo is there");
    assert!(pipe.success());
    format!(
        "[[endpoint]]\nroute = 'GET /s/{{path...}}'\nfiles = '{0}'\n\
         [[endpoint]]\nroute = 'GET /deep/{{path...}}'\nfiles = '{0}'\nencoded_slash = 'pass'\n",
        root.display()
    )
}

#[test]
fn no_spelling_leads_out_of_the_folder() {
    let folder = Folder::new();
    let front = Front::start(&public(&folder));
    let mut client = front.server.client();
    for target in [
        "/s/.env",
        "/s/.git/config",
        "/s/%2eenv",
        "/s/out.txt",
        "/s/absolute.txt",
        "/s/up/secret",
        "/s/up/",
        "/s/loop",
        "/s/pipe",
        "/s/nothing",
        "/s/index.html/",
        "/s/index.html/x",
        "/s/docs/empty",
        "/s/docs/empty/",
        "/s/docs//nothing",
        "/s/app.js%20",
        "/deep/docs%2findex.html",
        "/deep/%2fetc%2fpasswd",
    ] {
        let answer = get(&mut client, target, &[]);
        assert_eq!(answer.status, 404, "{target}: {answer:?}");
        assert!(!answer.text().contains("secret"), "{target}");
    }
    for target in [
        "/s/..%2fsecret",
        "/s/a%00b",
        "/s/%2e%2e%2fsecret",
        "/deep/..%2fsecret",
        "/deep/docs%2f..%2f..%2fsecret",
        "/deep/%2e%2e%2fsecret",
        "/deep/..%5csecret",
    ] {
        assert!([400, 404].contains(&get(&mut client, target, &[]).status), "{target}");
    }
    for target in ["/s/../secret", "/s/%2e%2e/secret", "/s/docs/../../secret"] {
        get(&mut client, target, &[]).expect_problem(404, "there is nothing here");
    }
    assert_eq!(get(&mut client, &format!("/s/{}", "x".repeat(300)), &[]).status, 404);
    assert_eq!(get(&mut client, "/s/within.txt", &[]).text(), "with a space", "a link within");
    assert_eq!(client.ask("POST", "/s/app.js", Some("{}")).status, 405);
}

#[test]
fn folders_types_and_validators() {
    let folder = Folder::new();
    let front = Front::start(&public(&folder));
    let mut client = front.server.client();
    for (target, kind, text) in [
        ("/s/", "text/html; charset=utf-8", "<p>home</p>"),
        ("/s/index.html", "text/html; charset=utf-8", "<p>home</p>"),
        ("/s/docs/", "text/html; charset=utf-8", "<p>docs</p>"),
        ("/s/docs/a%20b.txt", "text/plain; charset=utf-8", "with a space"),
        ("/s/nothing.bin", "application/octet-stream", ""),
    ] {
        let answer = get(&mut client, target, &[]);
        assert_eq!(
            (answer.status, answer.header("content-type"), answer.text()),
            (200, Some(kind), text),
            "{target}"
        );
        let head = client.ask("HEAD", target, None);
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), Some(text.len().to_string().as_str()), "{target}");
        assert_eq!(head.header("etag"), answer.header("etag"));
    }
    for (target, to) in
        [("/s", "/s/"), ("/s/docs", "/s/docs/"), ("/s/docs?a=b", "/s/docs/?a=b"), ("//s/docs", "/s/docs/")]
    {
        let answer = get(&mut client, target, &[]);
        assert_eq!((answer.status, answer.header("location")), (301, Some(to)), "{target}");
    }
    let first = get(&mut client, "/s/app.js", &[]);
    let (etag, date) = (
        first.header("etag").expect("one").to_owned(),
        first.header("last-modified").expect("one").to_owned(),
    );
    let known = get(&mut client, "/s/app.js", &[("If-None-Match", &etag)]);
    assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some(etag.as_str())));
    assert_eq!(get(&mut client, "/s/app.js", &[("If-Modified-Since", &date)]).status, 304);
    let other = [("If-None-Match", "\"x\""), ("If-Modified-Since", date.as_str())];
    assert_eq!(get(&mut client, "/s/app.js", &other).status, 200, "the validator decides");
    assert_eq!(get(&mut client, "/s/app.js", &[("If-Modified-Since", "yesterday")]).status, 200);
    std::fs::write(folder.path().join("public/app.js"), "let plain = 2").expect("a file");
    assert_eq!(get(&mut client, "/s/app.js", &[("If-None-Match", &etag)]).text(), "let plain = 2");
}

#[test]
fn the_form_that_the_client_takes_is_sent() {
    let folder = Folder::new();
    let front = Front::start(&public(&folder));
    let mut client = front.server.client();
    let plain = get(&mut client, "/s/app.js", &[]).header("etag").map(str::to_owned);
    for (accepted, coding, text) in [
        ("gzip", Some("gzip"), "gzipped"),
        ("br, gzip", Some("gzip"), "gzipped"),
        ("gzip;q=0.5, zstd", Some("zstd"), "zstandard"),
        ("gzip;q=0, zstd;q=0", None, "let plain = 1"),
        ("deflate", None, "let plain = 1"),
    ] {
        let answer = get(&mut client, "/s/app.js", &[("Accept-Encoding", accepted)]);
        assert_eq!((answer.header("content-encoding"), answer.text()), (coding, text), "{accepted}");
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
        assert_eq!(answer.header("content-type"), Some("text/javascript; charset=utf-8"));
        assert_eq!(answer.header("etag").map(str::to_owned) == plain, coding.is_none(), "{accepted}");
    }
    let old = get(&mut client, "/s/old.css", &[("Accept-Encoding", "gzip")]);
    assert_eq!(
        (old.header("content-encoding"), old.text()),
        (None, "new"),
        "an older form is of an older file"
    );
    let part = get(&mut client, "/s/app.js", &[("Accept-Encoding", "gzip"), ("Range", "bytes=0-2")]);
    assert_eq!((part.status, part.header("content-encoding"), part.text()), (206, None, "let"));
}

#[test]
fn parts_of_a_long_file() {
    let folder = Folder::new();
    let front = Front::start(&public(&folder));
    let mut client = front.server.client();
    let long = long();
    let whole = get(&mut client, "/s/long.bin", &[]);
    assert!(whole.status == 200 && whole.body == long && whole.header("accept-ranges") == Some("bytes"));
    assert_eq!(client.ask("HEAD", "/s/long.bin", None).header("content-length"), Some("3000017"));
    for (range, start, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=100000-2999999", 100_000, 3_000_000),
        ("bytes=2999999-", 2_999_999, LONG_BYTES),
        ("bytes=-5", LONG_BYTES - 5, LONG_BYTES),
    ] {
        let answer = get(&mut client, "/s/long.bin", &[("Range", range)]);
        assert_eq!(answer.status, 206, "{range}");
        assert!(answer.body == long[start..end], "{range}");
        let shown = format!("bytes {start}-{}/{LONG_BYTES}", end - 1);
        assert_eq!(answer.header("content-range"), Some(shown.as_str()));
    }
    let beyond = get(&mut client, "/s/long.bin", &[("Range", "bytes=3000017-")]);
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */3000017")));
    for whole in ["bytes=0-1,5-6", "bytes=5-1", "lines=0-1"] {
        assert_eq!(get(&mut client, "/s/long.bin", &[("Range", whole)]).status, 200, "{whole}");
    }
    let etag =
        get(&mut client, "/s/long.bin", &[("Range", "bytes=0-0")]).header("etag").expect("one").to_owned();
    let same = get(&mut client, "/s/long.bin", &[("Range", "bytes=0-0"), ("If-Range", &etag)]);
    let other = get(&mut client, "/s/long.bin", &[("Range", "bytes=0-0"), ("If-Range", "\"x\"")]);
    assert_eq!((same.status, other.status), (206, 200), "a part of another file is of no use");
}

#[test]
fn a_server_that_keeps_nothing_leaves_nothing() {
    let (folder, scratch) = (Folder::new(), Folder::new());
    std::fs::write(folder.path().join("a.txt"), "here").expect("a file");
    let file = folder.write("door.toml", "[[endpoint]]\nroute = 'GET /{path...}'\nfiles = '.'\n");
    let mut command = Command::new(binary());
    command.arg("serve").arg(&file).args(["--listen", "127.0.0.1:0"]).env("TMPDIR", scratch.path());
    command.current_dir(folder.path()).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut server = command.spawn().expect("the binary can be run");
    let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("listening on http://").map(str::to_owned));
    let address = address.expect("it listens").parse().expect("an address");
    let mut client = Client::connect(address).expect("it answers");
    assert_eq!(client.get("/a.txt").text(), "here");
    kill_process(Pid::from_child(&server), Signal::TERM).expect("it can be signalled");
    let rest: String = lines.collect();
    assert!(server.wait().expect("it ends").success(), "{rest}");
    let names = |folder: &Folder| {
        let entries = std::fs::read_dir(folder.path()).expect("a folder");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&folder), ["a.txt", "door.toml"]);
    assert!(names(&scratch).is_empty(), "{:?}", names(&scratch));
}
