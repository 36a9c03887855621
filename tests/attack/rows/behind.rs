//! What stands behind a request: tunnels, fills, upstreams, callers, lines of the log, spans.

use super::{Attack, ROW, Scene};
use crate::crowd::{Crowd, Hold};
use crate::sizes::Sizes;
use crate::target::{Reader, Target};
use crate::upstream::Behaviour;
use std::thread;
use std::time::{Duration, Instant};

/// A request that waits, with its connection to an upstream.
const WAITING_BYTES: u64 = 32 << 10;
/// A fill that waits, and what a fill has besides the part of the body that it holds.
const FILL_BYTES: u64 = 80 << 10;
const LATE_FILL_BYTES: u64 = 112 << 10;
/// What one side of a tunnel may be behind the other, for both sides, with what was read for them.
const TUNNEL_BYTES: u64 = 4 * (64 << 10);
/// The callers that an endpoint counts, and what it has for each.
const CALLERS: u64 = 65_536;
const CALLER_BYTES: u64 = 16;
/// The lines and spans that wait, and what each has besides its path.
const LINES: u64 = 8192;
const LINE_BYTES: u64 = 1 << 10;
const SPANS: u64 = 2048 + 2 * 512;
const SPAN_BYTES: u64 = 2 << 10;
/// Requests of one connection before its answers are read.
const AT_ONCE: usize = 8;

fn proxied(scene: &Scene<'_>, more: &str) -> String {
    let (url, places) = (scene.behind(), scene.sizes.concurrency);
    format!("[[endpoint]]\nroute = 'GET /app/{{id}}'\nproxy = '{url}'\nconcurrency = {places}\n{more}\n")
}

fn waiting(scene: &Scene<'_>, target: &Target, requests: impl Fn(usize) -> String) -> Box<dyn Hold> {
    Box::new(
        Crowd::open(target.address, scene.sizes.waiters, true).send(|number| requests(number).into_bytes()),
    )
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn tunnels(target: &Target, count: usize) -> Box<dyn Hold> {
    let ask = b"GET /app/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    Box::new(Crowd::open(target.address, count, false).send(|_| ask.to_vec()))
}

/// Requests that are answered, from a few connections: what they leave behind is measured.
struct Done {
    _crowd: Crowd,
    requests: usize,
}

impl Hold for Done {
    fn count(&self) -> usize {
        self.requests
    }
}

fn done(target: &Target, requests: usize, request: impl Fn(usize) -> String) -> Box<dyn Hold> {
    const CONNECTIONS: usize = 8;
    let mut crowd = Crowd::open(target.address, CONNECTIONS, true);
    for round in 0..requests / (CONNECTIONS * AT_ONCE) {
        let of = |number: usize| (round * CONNECTIONS + number) * AT_ONCE;
        crowd =
            crowd.send(|number| (of(number)..of(number) + AT_ONCE).map(&request).collect::<String>().into());
        let began = Instant::now();
        while crowd.read() == 0 && began.elapsed() < Duration::from_secs(1) {
            thread::yield_now();
        }
    }
    Box::new(Done { _crowd: crowd, requests })
}

/// As long as a target may be, for a path that is written down.
fn long_path(sizes: &Sizes, number: usize) -> String {
    get(&format!("/{number}/{}", "a".repeat(sizes.target as usize - 32)))
}

/// The same request, for which a trusted proxy wants a span.
fn traced(request: &str) -> String {
    let field = format!("traceparent: 00-{:032x}-{:016x}-01", 1, 1);
    request.replacen("\r\n", &format!("\r\n{field}\r\n"), 1)
}

/// A head that is almost as long as it may be.
fn long_head(sizes: &Sizes, path: &str) -> String {
    let value = "a".repeat(sizes.head as usize - 512);
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Long: {value}\r\n\r\n")
}

pub const ROWS: &[Attack] = &[
    Attack {
        name: "idle tunnels",
        config: |scene| proxied(scene, ""),
        upstream: Some(|_| Behaviour::tunnel()),
        open: |scene, target| tunnels(target, scene.sizes.waiters),
        bound: |sizes| sizes.concurrency * WAITING_BYTES,
        formula: "concurrency × 32 KiB",
        ..ROW
    },
    Attack {
        name: "tunnels whose clients do not read",
        config: |scene| proxied(scene, ""),
        upstream: Some(|_| Behaviour::flood()),
        open: |scene, target| tunnels(target, scene.sizes.readers),
        bound: |sizes| sizes.readers as u64 * TUNNEL_BYTES,
        formula: "held × 256 KiB",
        ..ROW
    },
    Attack {
        name: "slow proxied requests",
        config: |scene| proxied(scene, ""),
        upstream: Some(|_| Behaviour::Mute),
        open: |scene, target| waiting(scene, target, |number| get(&format!("/app/{number}"))),
        bound: |sizes| sizes.concurrency * WAITING_BYTES,
        formula: "concurrency × 32 KiB",
        ..ROW
    },
    Attack {
        name: "fills of many keys that hang",
        config: |scene| proxied(scene, "cache = { local = '1m' }"),
        upstream: Some(|_| Behaviour::Mute),
        open: |scene, target| waiting(scene, target, |number| get(&format!("/app/{number}"))),
        bound: |sizes| sizes.concurrency * FILL_BYTES,
        formula: "concurrency × 80 KiB",
        ..ROW
    },
    Attack {
        name: "fills that hang before their last bytes",
        config: |scene| {
            proxied(scene, &format!("cache = {{ local = '1m', largest = '{}B' }}", scene.sizes.largest))
        },
        upstream: Some(|sizes| Behaviour::answer(sizes.largest, sizes.largest - 1024)),
        open: |scene, target| waiting(scene, target, |number| get(&format!("/app/{number}"))),
        bound: |sizes| sizes.concurrency * (sizes.largest + LATE_FILL_BYTES),
        formula: "concurrency × (largest + 112 KiB)",
        ..ROW
    },
    Attack {
        name: "waiters of one fill",
        config: |scene| proxied(scene, "cache = { local = '1m' }"),
        upstream: Some(|_| Behaviour::Mute),
        open: |scene, target| {
            let sizes = scene.sizes;
            let requests = long_head(sizes, "/app/1").repeat(sizes.pipeline_depth as usize);
            Box::new(Crowd::open(target.address, sizes.pipeliners, true).send(|_| requests.clone().into()))
        },
        bound: |sizes| sizes.answers + sizes.pipeliners as u64 * (sizes.head + WAITING_BYTES),
        formula: "answers + held × (head + 32 KiB)",
        ..ROW
    },
    Attack {
        name: "callers of a rate",
        config: |_| {
            "[[endpoint]]\nroute = 'GET /rate'\nconstant = {}\nrate = '1/h per header X-Key'\n".to_owned()
        },
        open: |scene, target| {
            let of = |number| format!("GET /rate HTTP/1.1\r\nHost: a\r\nX-Key: {number}\r\n\r\n");
            done(target, scene.sizes.callers, of)
        },
        bound: |_| CALLERS * CALLER_BYTES,
        formula: "65,536 × 16 B",
        ..ROW
    },
    Attack {
        name: "lines of the log that nobody reads",
        open: |scene, target| done(target, 2 * LINES as usize, |number| long_path(scene.sizes, number)),
        bound: |sizes| LINES * (sizes.target + LINE_BYTES),
        formula: "8,192 × (target + 1 KiB)",
        logs: &[true],
        reader: Reader::Stops,
        ..ROW
    },
    Attack {
        name: "spans whose collector hangs",
        // Only the attackers' requests have spans: others would fill the queue before them.
        config: |scene| {
            let url = scene.behind();
            format!("[trace]\notlp = '{url}'\nshare = 0\n[server]\ntrusted_proxies = ['127.1.0.0/16']\n")
        },
        upstream: Some(|_| Behaviour::Mute),
        open: |scene, target| {
            done(target, 2 * SPANS as usize, |number| traced(&long_path(scene.sizes, number)))
        },
        bound: |sizes| SPANS * (sizes.target + SPAN_BYTES),
        formula: "3,072 × (target + 2 KiB)",
        ..ROW
    },
];
