//! Bodies that arrive slowly: almost all of it at once, the rest drop by drop.

use super::{Attack, ROW, Scene};
use crate::crowd::{Crowd, Hold};
use crate::http2::Connections;
use crate::sizes::Sizes;
use crate::target::Target;
use crate::upstream::Behaviour;

/// The longest read.
const READ_BYTES: u64 = 64 << 10;
/// What waits for an upstream that takes nothing: one read between client and upstream, and the buffers of
/// both connections, which grow with it.
const PIPE_BYTES: u64 = 4 * READ_BYTES;
/// More than the kernels of both connections of one machine keep.
const UNREAD_BYTES: usize = 6 << 20;
const FORMULA: &str = "bodies + workers × 64 KiB";
/// Streams of one connection of HTTP/2.
const STREAMS: usize = 4;

/// What bodies may take that arrive in part.
fn bodies(sizes: &Sizes) -> u64 {
    sizes.bodies + sizes.workers * READ_BYTES
}

const BODY: Attack = Attack {
    config: |_| {
        "[[endpoint]]\nroute = 'POST /post'\nconstant = { a = 1 }\nparams = { b = 'text?' }\n\
         [[endpoint]]\nroute = 'POST /guarded'\nconstant = { a = 1 }\n\
         guard = { header = 'X-Secret', secret = 'sesame', status = 401 }\n"
            .to_owned()
    },
    bound: bodies,
    formula: FORMULA,
    ..ROW
};

/// A head and the first part of a body of that many bytes.
fn begun(scene: &Scene<'_>, line: &str) -> Vec<u8> {
    let length = scene.sizes.body;
    let head = format!(
        "{line} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + scene.sizes.almost_body(), b' ');
    bytes
}

/// The slowest permitted pace, with room for late drops.
fn drop_bytes(sizes: &Sizes) -> usize {
    (1100.0 * sizes.drip_every.as_secs_f64()) as usize
}

fn upload(scene: &Scene<'_>, target: &Target, count: usize, line: &str) -> Box<dyn Hold> {
    let bytes = begun(scene, line);
    let drop = vec![b' '; drop_bytes(scene.sizes)];
    Box::new(Crowd::open(target.address, count, true).send(|_| bytes.clone()).dripping(&drop))
}

fn chunked(scene: &Scene<'_>, target: &Target) -> Box<dyn Hold> {
    let head = "POST /post HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let almost = scene.sizes.almost_body();
    let mut bytes = format!("{head}{almost:x}\r\n").into_bytes();
    bytes.resize(bytes.len() + almost, b' ');
    bytes.extend(b"\r\n");
    let drop = drop_bytes(scene.sizes);
    let drop = format!("{drop:x}\r\n{}\r\n", " ".repeat(drop));
    let crowd = Crowd::open(target.address, scene.sizes.uploads, true).send(|_| bytes.clone());
    Box::new(crowd.dripping(drop.as_bytes()))
}

fn http2(scene: &Scene<'_>, target: &Target) -> Box<dyn Hold> {
    let sizes = scene.sizes;
    let count = sizes.uploads / STREAMS;
    let mut held = Connections::upload(target.address, count, STREAMS, sizes.body, sizes.almost_body());
    held.drop_bytes = drop_bytes(sizes);
    Box::new(held)
}

pub const ROWS: &[Attack] = &[
    Attack {
        name: "slow bodies",
        open: |scene, target| upload(scene, target, scene.sizes.uploads, "POST /post"),
        ..BODY
    },
    Attack {
        name: "slow bodies behind a guard",
        open: |scene, target| upload(scene, target, scene.sizes.uploads, "POST /guarded"),
        ..BODY
    },
    Attack {
        name: "slow bodies without an endpoint",
        open: |scene, target| upload(scene, target, scene.sizes.uploads, "POST /none"),
        ..BODY
    },
    Attack {
        name: "slow bodies with another method",
        open: |scene, target| upload(scene, target, scene.sizes.uploads, "PUT /post"),
        ..BODY
    },
    Attack { name: "slow chunked bodies", open: chunked, ..BODY },
    Attack {
        name: "slow bodies of HTTP/2",
        open: http2,
        bound: |sizes| bodies(sizes) + (sizes.uploads / STREAMS) as u64 * 2 * READ_BYTES,
        formula: "bodies + workers × 64 KiB + connections × 128 KiB",
        ..BODY
    },
    Attack {
        name: "bodies that the upstream does not read",
        config: |scene| {
            let (url, places) = (scene.behind(), scene.sizes.concurrency);
            format!("[[endpoint]]\nroute = 'POST /proxy'\nproxy = '{url}'\nconcurrency = {places}\n")
        },
        upstream: Some(|_| Behaviour::Mute),
        open: |scene, target| {
            let mut bytes = b"POST /proxy HTTP/1.1\r\nHost: a\r\nContent-Length: 16777216\r\n\r\n".to_vec();
            bytes.resize(UNREAD_BYTES, b' ');
            Box::new(Crowd::open(target.address, scene.sizes.readers / 2, true).send(|_| bytes.clone()))
        },
        bound: |sizes| sizes.readers as u64 / 2 * PIPE_BYTES,
        formula: "held × 256 KiB",
        ..ROW
    },
];
