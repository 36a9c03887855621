//! Answers that their clients do not read.

use super::{Attack, ROW, Scene};
use crate::crowd::{Crowd, Hold};
use crate::http2::{Connection, Connections, request};
use crate::sizes::Sizes;
use crate::target::Target;
use crate::upstream::{Behaviour, LATE, STREAM};
use forebay_tests::Client;
use std::thread;

/// What was read from an upstream and is not an answer yet.
const UPSTREAM_BYTES: u64 = 16 << 10;
/// The length of an answer that is asked for again and again.
const BIG_BYTES: u64 = 192 << 10;
/// Requests of one connection: with the kernel of one machine, a client that reads nothing takes 2.5 MiB.
const AT_ONCE: usize = 24;
/// Streams of one connection of HTTP/2.
const STREAMS: usize = 4;
const FILE_BYTES: u64 = 64 << 20;

const FORMULA: &str = "answers + workers × output";
const FORMULA_FILES: &str = "answers + workers × output + 16 threads × 2 MiB + concurrency × 256 KiB";
const FORMULA_HTTP2: &str = "answers + workers × output + held × 36 KiB";
/// What an idle connection of HTTP/2 takes.
const HTTP2_BYTES: u64 = 36 << 10;
/// A piece of a file that was read, and its copy.
const FILE_BYTES_EACH: u64 = 256 << 10;
/// The threads that read files, with what the allocator keeps for each.
const FILE_THREADS_BYTES: u64 = 16 * (2 << 20);

fn answers(sizes: &Sizes) -> u64 {
    sizes.answers + sizes.workers * sizes.output
}

fn ask(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Each sends these requests and reads nothing.
fn unread(scene: &Scene<'_>, target: &Target, requests: &[u8]) -> Box<dyn Hold> {
    Box::new(Crowd::open(target.address, scene.sizes.readers, false).send(|_| requests.to_vec()))
}

/// The same requests on streams of HTTP/2 whose windows are shut.
fn shut(scene: &Scene<'_>, target: &Target, path: &str) -> Box<dyn Hold> {
    let open = |number| {
        let mut connection = Connection::open(target.address, number, 0);
        let requests: Vec<u8> =
            (0..STREAMS as u32).flat_map(|number| request(1 + 2 * number, "GET", path, None)).collect();
        connection.put(&requests);
        connection
    };
    Box::new(Connections {
        all: (0..scene.sizes.readers).map(open).collect(),
        streams: STREAMS,
        drop_bytes: 0,
    })
}

const CONSTANT: Attack = Attack {
    config: |_| {
        let text = "a".repeat(BIG_BYTES as usize);
        format!("[[endpoint]]\nroute = 'GET /big'\nconstant = {{ a = '{text}' }}\n")
    },
    bound: answers,
    formula: FORMULA,
    ..ROW
};

const CACHED: Attack = Attack {
    config: |scene| {
        let url = scene.behind();
        format!("[[endpoint]]\nroute = 'GET /big'\nproxy = '{url}'\ncache = {{ local = '10m' }}\n")
    },
    upstream: Some(|_| Behaviour::answer(BIG_BYTES, BIG_BYTES)),
    bound: |sizes| answers(sizes) + 4 * BIG_BYTES,
    formula: FORMULA,
    ..ROW
};

const FILES: Attack = Attack {
    config: |scene| {
        let root = scene.folder.path().join("files");
        std::fs::create_dir(&root).expect("a folder can be made");
        let file = std::fs::File::create(root.join("big")).expect("a file can be made");
        // Without blocks: only its length counts.
        file.set_len(FILE_BYTES).expect("a length can be set");
        format!("[[endpoint]]\nroute = 'GET /files/{{path...}}'\nfiles = '{}'\n", root.display())
    },
    bound: |sizes| answers(sizes) + FILE_THREADS_BYTES + sizes.concurrency * FILE_BYTES_EACH,
    formula: FORMULA_FILES,
    ..ROW
};

pub const ROWS: &[Attack] = &[
    Attack {
        name: "constant answers that nobody reads",
        open: |scene, target| unread(scene, target, &ask("/big").repeat(AT_ONCE)),
        ..CONSTANT
    },
    Attack {
        name: "constant answers of HTTP/2 that nobody reads",
        open: |scene, target| shut(scene, target, "/big"),
        bound: |sizes| answers(sizes) + sizes.readers as u64 * HTTP2_BYTES,
        formula: FORMULA_HTTP2,
        ..CONSTANT
    },
    Attack {
        name: "cached answers that nobody reads",
        open: |scene, target| {
            // The host is a part of the key.
            let mut client = Client::connect(target.address).expect("the server listens");
            client.send(&ask("/big")).expect("a live socket");
            assert_eq!(client.receive(false).expect("an answer").status, 200);
            unread(scene, target, &ask("/big").repeat(AT_ONCE))
        },
        ..CACHED
    },
    Attack {
        name: "answers of one fill that nobody reads",
        bound: |sizes| answers(sizes) + sizes.readers as u64 * 4 * UPSTREAM_BYTES,
        formula: "answers + workers × output + held × 64 KiB",
        upstream: Some(|_| Behaviour::answer(BIG_BYTES, BIG_BYTES).late()),
        open: |scene, target| {
            let held = unread(scene, target, &ask("/big").repeat(AT_ONCE));
            thread::sleep(LATE);
            held
        },
        ..CACHED
    },
    Attack {
        name: "answers behind one that waits",
        config: |scene| {
            let (url, big) = (scene.behind(), (CONSTANT.config)(scene));
            format!("{big}[[endpoint]]\nroute = 'GET /hangs'\nproxy = '{url}'\nconcurrency = 100000\n")
        },
        upstream: Some(|_| Behaviour::Mute),
        open: |scene, target| {
            let rest = ask("/big").repeat(AT_ONCE - 1);
            unread(scene, target, &[ask("/hangs"), rest].concat())
        },
        bound: |sizes| answers(sizes) + sizes.readers as u64 * UPSTREAM_BYTES,
        formula: "answers + workers × output + held × 16 KiB",
        ..ROW
    },
    Attack {
        name: "files that nobody reads",
        open: |scene, target| unread(scene, target, &ask("/files/big")),
        ..FILES
    },
    Attack {
        name: "files of HTTP/2 that nobody reads",
        open: |scene, target| shut(scene, target, "/files/big"),
        ..FILES
    },
    Attack {
        name: "proxied answers that nobody reads",
        config: |scene| {
            let (url, places) = (scene.behind(), scene.sizes.concurrency);
            format!("[[endpoint]]\nroute = 'GET /stream'\nproxy = '{url}'\nconcurrency = {places}\n")
        },
        upstream: Some(|_| STREAM),
        open: |scene, target| unread(scene, target, &ask("/stream")),
        bound: |sizes| answers(sizes) + sizes.readers as u64 * UPSTREAM_BYTES,
        formula: "answers + workers × output + held × 16 KiB",
        ..ROW
    },
];
