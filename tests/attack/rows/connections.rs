//! Connections without a whole request.

use super::{Attack, ROW};
use crate::crowd::{Crowd, Hold};
use crate::http2::{Connection, Connections, unfinished_head};
use crate::sizes::Sizes;
use crate::tls::{Secure, client_hello};

// Measured with the default limits and rounded up.
/// A connection without input and output: 1.2 to 1.6 KiB.
const PLAIN_BYTES: u64 = 2 << 10;
/// A handshake that waits for its client: 10 to 12 KiB, and 15 to 24 with a part of a long message.
const HANDSHAKE_BYTES: u64 = 16 << 10;
/// A connection after its handshake: 9 KiB.
const SECURE_BYTES: u64 = 12 << 10;
/// A connection of HTTP/2 without a request: 33 KiB.
const HTTP2_BYTES: u64 = 36 << 10;

const FIRST_REQUEST: &[u8] = b"GET /hot HTTP/1.1\r\nHost: a\r\n\r\n";

pub const ROWS: &[Attack] = &[
    Attack {
        name: "idle connections",
        open: |scene, target| Box::new(Crowd::open(target.address, scene.sizes.crowd, true)),
        bound: |sizes| sizes.most_connections() * PLAIN_BYTES,
        formula: "connections × 2 KiB",
        ..ROW
    },
    Attack {
        name: "idle connections after a request",
        open: |scene, target| {
            let mut crowd =
                Crowd::open(target.address, scene.sizes.crowd, true).send(|_| FIRST_REQUEST.into());
            crowd.read();
            Box::new(crowd)
        },
        bound: |sizes| sizes.most_connections() * PLAIN_BYTES,
        formula: "connections × 2 KiB",
        ..ROW
    },
    Attack {
        name: "silent TLS handshakes",
        open: |scene, target| Box::new(Crowd::open(target.https, scene.sizes.crowd, true)),
        bound: |sizes| sizes.handshakes * HANDSHAKE_BYTES,
        formula: "handshakes × 16 KiB",
        ..ROW
    },
    Attack {
        name: "TLS handshakes that stop after the first message",
        open: |scene, target| {
            let hello = client_hello();
            let count = 2 * scene.sizes.handshakes as usize;
            Box::new(Crowd::open(target.https, count, true).send(|_| hello.clone()))
        },
        bound: |sizes| sizes.handshakes * HANDSHAKE_BYTES,
        formula: "handshakes × 16 KiB",
        ..ROW
    },
    Attack {
        name: "TLS handshakes whose first message stays incomplete",
        open: |scene, target| {
            let count = 2 * scene.sizes.handshakes as usize;
            Box::new(Crowd::open(target.https, count, true).send(|_| unfinished_hello()))
        },
        bound: |sizes| sizes.handshakes * 3 * HANDSHAKE_BYTES,
        formula: "handshakes × 48 KiB",
        ..ROW
    },
    Attack {
        name: "idle TLS connections",
        open: |scene, target| Box::new(Secure::open(target.https, scene.sizes.secure)),
        bound: |sizes| sizes.secure as u64 * SECURE_BYTES,
        formula: "held × 12 KiB",
        ..ROW
    },
    Attack {
        name: "idle connections of HTTP/2",
        open: |scene, target| http2(target.address, scene.sizes, &[]),
        bound: |sizes| sizes.most_connections() * HTTP2_BYTES,
        formula: "connections × 36 KiB",
        ..ROW
    },
    Attack {
        name: "slow heads",
        open: |scene, target| {
            let head = long_head(scene.sizes.head as usize - 1024);
            Box::new(
                Crowd::open(target.address, scene.sizes.crowd, true).send(|_| head.clone()).dripping(b"a"),
            )
        },
        bound: |sizes| sizes.most_connections() * (6 * PLAIN_BYTES + sizes.head),
        formula: "connections × (head + 12 KiB)",
        ..ROW
    },
    Attack {
        name: "heads of HTTP/2 without an end",
        open: |scene, target| http2(target.address, scene.sizes, &unfinished_head(scene.sizes.head as usize)),
        bound: |sizes| sizes.most_connections() * (HTTP2_BYTES + 5 * sizes.head),
        formula: "connections × (5 head + 36 KiB)",
        ..ROW
    },
];

/// A handshake message of 16 KiB less a part: the record's head announces more than is sent.
fn unfinished_hello() -> Vec<u8> {
    let mut bytes = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb, 3, 3];
    bytes.resize(15 * 1024, b'a');
    bytes
}

/// The beginning of a head.
fn long_head(bytes: usize) -> Vec<u8> {
    let mut head = b"GET /hot HTTP/1.1\r\nHost: a\r\nX-Long: ".to_vec();
    head.resize(bytes, b'a');
    head
}

fn http2(address: std::net::SocketAddr, sizes: &Sizes, more: &[u8]) -> Box<dyn Hold> {
    let open = |number| {
        let mut connection = Connection::open(address, number, 65_535);
        connection.put(more);
        connection
    };
    Box::new(Connections { all: (0..sizes.crowd).map(open).collect(), streams: 1, drop_bytes: 0 })
}
