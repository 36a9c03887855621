//! The load engine against small servers, correct and faulty.

use forebay_load::{ErrorKind, Fixed, Generated, OnClose, Pace, Response, Settings, Stop, Traffic, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Serves each connection on its own thread until the client closes.
fn serve(connection: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || connection(stream));
        }
    });
    address
}

/// Reads requests without a body; calls back with the number of complete ones.
fn each_request(stream: &mut TcpStream, mut answer: impl FnMut(&mut TcpStream, &[u8]) -> bool) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
        while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let request: Vec<u8> = bytes.drain(..end + 4).collect();
            if !answer(stream, &request) {
                return;
            }
        }
    }
}

const HI: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A long time-out except where a test is about time-outs, because a busy machine may be very slow.
fn settings(address: SocketAddr, stop: Stop) -> Settings {
    Settings { connections: 4, timeout: Duration::from_secs(60), ..Settings::new(address, stop) }
}

#[test]
fn an_amount_is_sent_and_answered_exactly() {
    let address = serve(|mut stream| each_request(&mut stream, |stream, _| stream.write_all(HI).is_ok()));
    for pipelining in [1, 7] {
        let settings = Settings { pipelining, ..settings(address, Stop::Amount(1001)) };
        let report = run(&settings, &mut Fixed::new("GET", "/", None)).unwrap();
        assert_eq!(
            (report.requests.sent, report.requests.completed, report.status(200)),
            (1001, 1001, 1001),
            "{report}"
        );
        assert_eq!(report.latency_ms.count(), 1001);
        assert_eq!(report.bytes.read, 1001 * HI.len() as u64);
        assert!(report.is_clean(), "{report}");
    }
}

/// Numbers its requests per connection and checks that answers echo them in order.
struct Numbered {
    sent: Vec<u64>,
    seen: Vec<u64>,
}

impl Traffic for Numbered {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("GET /{} HTTP/1.1\r\n\r\n", self.sent[connection]).as_bytes());
        self.sent[connection] += 1;
    }

    fn response(&mut self, connection: usize, response: &Response<'_>) {
        let expected = format!("/{}", self.seen[connection]);
        assert_eq!(response.body, expected.as_bytes());
        assert_eq!(response.header("x-long").map(<[u8]>::len), Some(100));
        self.seen[connection] += 1;
    }
}

#[test]
fn answers_in_pieces_belong_to_their_requests() {
    let address = serve(|mut stream| {
        each_request(&mut stream, |stream, request| {
            let target = request.split(|byte| *byte == b' ').nth(1).unwrap();
            let mut answer =
                format!("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nX-Long: {}\r\n", "x".repeat(100));
            answer += &format!("Content-Length: {}\r\n\r\n", target.len());
            let answer = [answer.as_bytes(), target].concat();
            answer.chunks(61).all(|piece| stream.write_all(piece).is_ok())
        });
    });
    let mut traffic = Numbered { sent: vec![0; 4], seen: vec![0; 4] };
    let settings = Settings { pipelining: 5, ..settings(address, Stop::Amount(400)) };
    let report = run(&settings, &mut traffic).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(traffic.seen.iter().sum::<u64>(), 400);
    assert_eq!(traffic.seen, traffic.sent);
}

#[test]
fn large_answers_come_whole() {
    let address = serve(|mut stream| {
        each_request(&mut stream, |stream, _| {
            let body = vec![b'x'; 1_000_000];
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").is_ok()
                && stream.write_all(&body).is_ok()
        });
    });
    let report = run(&settings(address, Stop::Amount(20)), &mut Fixed::new("GET", "/", None)).unwrap();
    assert_eq!(report.status(200), 20, "{report}");
    assert!(report.bytes.read > 20_000_000);
}

#[test]
fn head_and_bodies_are_framed() {
    let address = serve(|mut stream| {
        each_request(&mut stream, |stream, request| {
            assert!(request.starts_with(b"HEAD / HTTP/1.1\r\n"));
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").is_ok()
        });
    });
    let report = run(&settings(address, Stop::Amount(50)), &mut Fixed::new("HEAD", "/", None)).unwrap();
    assert_eq!(report.status(200), 50, "{report}");
    let mut out = Vec::new();
    Fixed::new("POST", "/a", Some(b"{}")).request(0, &mut out);
    let expected = "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn garbage_is_no_answer() {
    let address = serve(|mut stream| {
        each_request(&mut stream, |stream, _| {
            stream.write_all(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n").is_ok()
        });
    });
    let settings = Settings { on_close: OnClose::Stay, ..settings(address, Stop::Amount(100)) };
    let report = run(&settings, &mut Fixed::new("GET", "/", None)).unwrap();
    assert_eq!(report.requests.completed, 0);
    assert_eq!(report.errors(ErrorKind::Malformed), 4, "{report}");
    assert_eq!(report.first_malformed.as_deref().unwrap().split(':').next(), Some("LineEnd"));
}

#[test]
fn an_answer_more_than_asked_is_an_error() {
    let address = serve(|mut stream| {
        each_request(&mut stream, |stream, _| stream.write_all(&[HI, HI].concat()).is_ok());
    });
    let settings = Settings { on_close: OnClose::Stay, connections: 1, ..settings(address, Stop::Amount(1)) };
    let report = run(&settings, &mut Fixed::new("GET", "/", None)).unwrap();
    assert_eq!(report.requests.completed, 1);
    assert_eq!(report.first_malformed.as_deref().unwrap().split(':').next(), Some("Unsolicited"), "{report}");
}

#[test]
fn what_is_cut_off_counts_as_closed_early() {
    let address = serve(|mut stream| {
        let mut answered = 0;
        each_request(&mut stream, |stream, _| {
            answered += 1;
            answered <= 3 && stream.write_all(HI).is_ok()
        });
    });
    let stay = Settings { on_close: OnClose::Stay, ..settings(address, Stop::Amount(100)) };
    let report = run(&stay, &mut Fixed::new("GET", "/", None)).unwrap();
    assert_eq!((report.requests.completed, report.requests.sent), (12, 16), "{report}");
    assert_eq!(report.errors(ErrorKind::ClosedEarly), 4);
    let again = settings(address, Stop::Amount(100));
    let report = run(&again, &mut Fixed::new("GET", "/", None)).unwrap();
    assert_eq!(report.requests.sent, 100);
    assert_eq!(report.requests.completed + report.errors(ErrorKind::ClosedEarly), 100, "{report}");
}

#[test]
fn a_close_that_was_announced_is_no_error() {
    let address = serve(|mut stream| {
        each_request(&mut stream, |stream, _| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            false
        });
    });
    let report = run(&settings(address, Stop::Amount(20)), &mut Fixed::new("GET", "/", None)).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.requests.completed, 20);
}

#[test]
fn silence_times_out() {
    let address = serve(|mut stream| each_request(&mut stream, |_, _| true));
    let timeout = Duration::from_millis(300);
    let settings = Settings { on_close: OnClose::Stay, timeout, ..settings(address, Stop::Amount(4)) };
    let report = run(&settings, &mut Fixed::new("GET", "/", None)).unwrap();
    assert_eq!((report.requests.completed, report.requests.timeouts), (0, 4), "{report}");
}

#[test]
fn nobody_there() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let error = run(&settings(address, Stop::Amount(1)), &mut Fixed::new("GET", "/", None)).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn open_model_counts_from_the_time_due() {
    // One connection, 200 a second, and a server that sleeps 500 ms once: about 100 requests become
    // due meanwhile. A latency from the time of sending would show one slow answer.
    let address = serve(|mut stream| {
        let mut answered = 0;
        each_request(&mut stream, |stream, _| {
            answered += 1;
            if answered == 20 {
                thread::sleep(Duration::from_millis(500));
            }
            stream.write_all(HI).is_ok()
        });
    });
    let settings = Settings {
        connections: 1,
        pace: Pace::rate(200.0),
        grace: Duration::from_secs(60),
        ..settings(address, Stop::Amount(200))
    };
    let mut sent = 0;
    let mut traffic = Generated(|_: usize, out: &mut Vec<u8>| {
        sent += 1;
        out.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
    });
    let report = run(&settings, &mut traffic).unwrap();
    assert_eq!((report.requests.completed, sent), (200, 200), "{report}");
    let slow = report.latency_ms.count_between(100_000_000, u64::MAX);
    assert!(slow >= 75, "{slow} answers were 100 ms late or more: {report}");
}

#[test]
fn settings_without_sense_are_refused() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let sane = Settings::new(address, Stop::Amount(1));
    for settings in [
        Settings { connections: 0, ..sane.clone() },
        Settings { pipelining: 0, ..sane.clone() },
        Settings { pace: Pace::rate(0.0), ..sane.clone() },
        Settings { pace: Pace::rate(f64::NAN), ..sane },
    ] {
        let error = run(&settings, &mut Fixed::new("GET", "/", None)).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[test]
fn connections_of_a_ramp_come_one_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, accepted) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            sender.send(Instant::now()).unwrap();
            thread::spawn(move || each_request(&mut stream, |stream, _| stream.write_all(HI).is_ok()));
        }
    });
    let ramp = Duration::from_millis(800);
    let settings = Settings { ramp, connections: 8, ..settings(address, Stop::After(2 * ramp)) };
    let began = Instant::now();
    let report = run(&settings, &mut Fixed::new("GET", "/", None)).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.connects.made, report.connects.open_max, report.load.ramp_s), (8, 8, 0.8));
    // A busy machine makes the connections later, never earlier.
    for (place, at) in accepted.try_iter().enumerate() {
        assert!(at >= began + ramp * place as u32 / 8, "connection {place}: {:?}", at - began);
    }
}
