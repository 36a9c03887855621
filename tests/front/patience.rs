//! What a client and an app may leave silent through a `proxy` that sets no time-out: a long poll, a stream
//! of events and an upgraded connection. `make idle-long` has them silent for five minutes.

use super::Front;
use super::upstream::Scripted;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than a minute, after which many proxies cut off.
const SILENCE_S: u64 = 62;

fn silence() -> Duration {
    let seconds = std::env::var("FOREBAY_IDLE_SECONDS").ok().map(|text| text.parse().expect("a number"));
    Duration::from_secs(seconds.unwrap_or(SILENCE_S))
}

const EVENTS: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";

#[test]
fn a_silent_poll_stream_and_socket_pass_through_a_proxy_without_settings() {
    // A minute more than the test needs is no long poll any more.
    let poll = silence().min(Duration::from_secs(SILENCE_S));
    let app = Scripted::new(move |request, stream| {
        let head = request.head.clone();
        if head.contains("/poll") {
            std::thread::sleep(poll);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").expect("it is taken");
        } else if head.contains("/events") {
            stream.write_all(EVENTS).expect("it is taken");
            std::thread::sleep(silence());
            stream.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").expect("it is taken");
        } else {
            stream
                .write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bytes\r\n\r\n",
                )
                .expect("it is taken");
            std::thread::sleep(silence());
            stream.write_all(b"pushed").expect("it is taken");
        }
        false
    });
    let front =
        Front::start(&format!("[[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{}'\n", app.address));
    let asked = |request: &str, end: &[u8]| {
        let mut stream = TcpStream::connect(front.server.address).expect("it listens");
        stream.set_read_timeout(Some(silence() + Duration::from_secs(60))).expect("a live socket");
        stream.write_all(request.as_bytes()).expect("a live socket");
        let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(end) {
            let read = stream.read(&mut piece).expect("an answer");
            assert!(read > 0, "{request}: cut off after {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..read]);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| asked("GET /poll HTTP/1.1\r\nHost: a\r\n\r\n", b"late"));
        scope.spawn(|| asked("GET /events HTTP/1.1\r\nHost: a\r\n\r\n", b"data: 2\n\n\r\n0\r\n\r\n"));
        let upgrade = "GET /bytes HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: bytes\r\n\r\n";
        scope.spawn(|| asked(upgrade, b"pushed"));
    });
}
