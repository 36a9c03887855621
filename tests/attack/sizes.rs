//! How large an attack is, and the limits of the server that it meets.

use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The limits of the server by the names of their keys, in bytes or numbers, then the sizes of attacks.
pub struct Sizes {
    pub is_long: bool,
    pub workers: u64,
    pub connections: u64,
    pub handshakes: u64,
    pub head: u64,
    pub target: u64,
    pub body: u64,
    pub bodies: u64,
    pub answers: u64,
    pub output: u64,
    pub pipeline_depth: u64,
    pub concurrency: u64,
    /// `cache.largest`.
    pub largest: u64,
    /// Connections of attacks that only connect: more than `connections`.
    pub crowd: usize,
    /// Connections that end their handshake, which costs both sides a signature.
    pub secure: usize,
    /// Bodies that arrive at the same time.
    pub uploads: usize,
    /// Clients that read no answer.
    pub readers: usize,
    /// Clients that pipeline requests which wait.
    pub pipeliners: usize,
    /// Clients of an endpoint that waits for its upstream: more than `concurrency`.
    pub waiters: usize,
    pub callers: usize,
    /// The normal client's requests, on each of its two kinds of connection.
    pub requests: usize,
    /// How long an attack is held before the normal client is timed beside it.
    pub hold: Duration,
    pub sample_every: Duration,
    pub drip_every: Duration,
    /// What memory may grow beyond a bound: pages that the allocator retains, and what a server touches first
    /// under load.
    pub slack: u64,
    /// The normal client's 99th percentile may always be this long.
    pub floor: Duration,
}

impl Sizes {
    pub fn from_environment() -> Sizes {
        if std::env::var("FOREBAY_ATTACK").is_ok_and(|form| form == "long") {
            Sizes::long()
        } else {
            Sizes::short()
        }
    }

    fn short() -> Sizes {
        Sizes {
            is_long: false,
            workers: 2,
            connections: 1536,
            handshakes: 512,
            head: 16 * KIB,
            target: 8 * KIB,
            body: 256 * KIB,
            bodies: 8 * MIB,
            answers: 8 * MIB,
            output: 128 * KIB,
            pipeline_depth: 32,
            concurrency: 256,
            largest: 64 * KIB,
            crowd: 2000,
            secure: 300,
            uploads: 128,
            readers: 150,
            pipeliners: 60,
            waiters: 320,
            callers: 12_000,
            requests: 150,
            hold: Duration::from_millis(150),
            sample_every: Duration::from_millis(20),
            drip_every: Duration::from_millis(100),
            slack: 16 * MIB,
            floor: Duration::from_millis(100),
        }
    }

    fn long() -> Sizes {
        Sizes {
            is_long: true,
            workers: 2,
            connections: 16_384,
            handshakes: 4096,
            head: 16 * KIB,
            target: 8 * KIB,
            body: MIB,
            bodies: 256 * MIB,
            answers: 256 * MIB,
            output: 256 * KIB,
            pipeline_depth: 128,
            concurrency: 1000,
            largest: MIB,
            crowd: 17_500,
            secure: 4000,
            uploads: 1000,
            readers: 1000,
            pipeliners: 60,
            waiters: 2000,
            callers: 100_000,
            requests: 2000,
            hold: Duration::from_secs(8),
            sample_every: Duration::from_millis(100),
            drip_every: Duration::from_millis(500),
            slack: 16 * MIB,
            floor: Duration::from_millis(2),
        }
    }

    /// `[server.limits]`.
    pub fn limits(&self) -> String {
        let mut text = "[server.limits]\n".to_owned();
        for (key, bytes) in [
            ("head", self.head),
            ("target", self.target),
            ("body", self.body),
            ("bodies", self.bodies),
            ("output", self.output),
            ("answers", self.answers),
        ] {
            text += &format!("{key} = '{bytes}B'\n");
        }
        for (key, number) in [
            ("connections", self.connections),
            ("handshakes", self.handshakes),
            ("pipeline_depth", self.pipeline_depth),
        ] {
            text += &format!("{key} = {number}\n");
        }
        text
    }

    /// The part of a body that is sent first; the rest follows drop by drop.
    pub fn almost_body(&self) -> usize {
        (self.body - self.body / 16) as usize
    }

    /// Connections that may be open while others are being ended to make room.
    pub fn most_connections(&self) -> u64 {
        self.connections + self.connections / 64
    }
}
