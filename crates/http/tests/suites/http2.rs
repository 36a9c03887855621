//! HTTP/2 as clients speak it: the same answers as in HTTP/1, streams that do not wait for each other,
//! endings, and floods that end their own connection. Over TLS by ALPN, without by prior knowledge.

use crate::common::{TestServer, get, is_secure, tls, wait_until};
use bytes::Bytes;
use forebay_http::Limits;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response};
use std::future::Future;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Runs a test whose clients are tasks of one thread.
fn run<R>(test: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("an end in a minute")
    })
}

trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

async fn dial(server: &TestServer) -> Box<dyn Io> {
    let stream = TcpStream::connect(server.listens).await.expect("the server listens");
    stream.set_nodelay(true).expect("a live socket");
    if !is_secure() {
        return Box::new(stream);
    }
    let mut config = tls::client(rustls::ALL_VERSIONS);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = "localhost".try_into().expect("a name");
    let connected = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    Box::new(connected.expect("a handshake"))
}

type Driving = JoinHandle<Result<(), h2::Error>>;

async fn connect(server: &TestServer) -> (SendRequest<Bytes>, Driving) {
    connect_as(server, h2::client::Builder::new().initial_window_size(1 << 20)).await
}

async fn connect_as(server: &TestServer, builder: &h2::client::Builder) -> (SendRequest<Bytes>, Driving) {
    let io = dial(server).await;
    let (requests, connection) = builder.handshake(io).await.expect("a preface");
    let driving = tokio::spawn(connection);
    (requests.ready().await.expect("settings"), driving)
}

fn request(method: Method, path: &str) -> Request<()> {
    let scheme = if is_secure() { "https" } else { "http" };
    let uri = format!("{scheme}://a{path}");
    Request::builder().method(method).uri(uri).body(()).expect("a request")
}

/// `STATUS body`, as `Client::answer` shows it.
async fn shown(response: Response<RecvStream>) -> String {
    let (head, body) = response.into_parts();
    assert_eq!(head.headers.get_all("date").iter().count(), 1, "{head:?}");
    for name in ["connection", "transfer-encoding", "keep-alive"] {
        assert!(!head.headers.contains_key(name), "{head:?}");
    }
    let body = match whole(body).await {
        Ok(body) => body,
        Err((count, error)) => {
            return format!("{} {count} bytes, then {:?}", head.status.as_u16(), error.reason());
        }
    };
    if let Some(length) = head.headers.get("content-length").filter(|_| !body.is_empty()) {
        assert_eq!(length.to_str().expect("digits"), body.len().to_string());
    }
    let body = String::from_utf8(body).expect("UTF-8");
    let detail = body.split("\"detail\":\"").nth(1).and_then(|rest| rest.strip_suffix("\"}"));
    format!("{} {}", head.status.as_u16(), detail.unwrap_or(&body)).trim().to_owned()
}

/// A body; or how much there was of it, and what broke it.
async fn whole(mut body: RecvStream) -> Result<Vec<u8>, (usize, h2::Error)> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|error| (bytes.len(), error))?;
        body.flow_control().release_capacity(piece.len()).expect("what was received");
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// The answer to a request without a body.
async fn ask(requests: &mut SendRequest<Bytes>, method: Method, path: &str) -> String {
    *requests = requests.clone().ready().await.expect("room for a stream");
    let (response, _) = requests.send_request(request(method, path), true).expect("a request");
    match response.await {
        Ok(response) => shown(response).await,
        Err(error) => format!("reset {:?}", error.reason()),
    }
}

/// The answer to a request with that body, sent as the server takes it.
async fn post(requests: &mut SendRequest<Bytes>, request: Request<()>, body: Vec<u8>) -> String {
    *requests = requests.clone().ready().await.expect("room for a stream");
    let (response, mut send) = requests.send_request(request, false).expect("a request");
    let mut rest = Bytes::from(body);
    let sending = async move {
        while !rest.is_empty() {
            send.reserve_capacity(rest.len());
            // One that is answered early is not sent to its end.
            let Some(Ok(_)) = std::future::poll_fn(|cx| send.poll_capacity(cx)).await else { return };
            let piece = rest.split_to(send.capacity().min(rest.len()));
            if send.send_data(piece, false).is_err() {
                return;
            }
        }
        let _ended = send.send_data(Bytes::new(), true);
        std::future::pending::<()>().await;
    };
    let answer = async {
        match response.await {
            Ok(response) => shown(response).await,
            Err(error) => format!("reset {:?}", error.reason()),
        }
    };
    tokio::select! {
        answer = answer => answer,
        () = async { sending.await; std::future::pending::<()>().await } => unreachable!(),
    }
}

#[test]
fn answers_are_those_of_http_1() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        for (method, path, expected) in [
            (Method::GET, "/echo/a%20b?c=d", "200 GET /echo/a b?c=d []"),
            (Method::OPTIONS, "/echo", "200 OPTIONS /echo []"),
            (Method::from_bytes(b"PURGE").expect("a token"), "/echo", "200 PURGE /echo []"),
            (Method::GET, "/nothing", "204"),
            (Method::GET, "/panic", "500 the handler failed"),
            (Method::GET, "/later-panic", "500 the handler failed"),
            (Method::GET, "/silent", "500 the handler gave no answer"),
            (Method::HEAD, "/big/5000", "200"),
            (Method::HEAD, "/stream/5000", "200"),
            (Method::GET, "/stream/0", "200"),
            (Method::GET, "/chunks/0", "200"),
        ] {
            assert_eq!(ask(&mut requests, method, path).await, expected, "{path}");
        }
        for size in [1, 16_384, 65_535, 65_536, 1_000_000, 5_000_000] {
            for route in ["big", "stream", "chunks"] {
                let answer = ask(&mut requests, Method::GET, &format!("/{route}/{size}")).await;
                assert_eq!(answer.len(), "200 ".len() + size, "{route} {size}");
            }
        }
        let body = b"abc".to_vec();
        assert_eq!(post(&mut requests, request(Method::POST, "/echo"), body).await, "200 POST /echo [abc]");
    });
    assert!(server.stats.total().requests > 20);
}

#[test]
fn streams_do_not_wait_for_each_other() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        let waiting: Vec<_> = ["/later/1", "/held/1", "/chunks-later/5/1", "/later-held/1/1"]
            .iter()
            .map(|path| requests.send_request(request(Method::GET, path), true).expect("a request").0)
            .collect();
        for number in 0..100 {
            let expected = format!("200 GET /echo/{number} []");
            assert_eq!(ask(&mut requests, Method::GET, &format!("/echo/{number}")).await, expected);
        }
        server.signal.send_replace(1);
        server.gate.advance(1);
        let mut answers = Vec::new();
        for response in waiting {
            answers.push(shown(response.await.expect("an answer")).await);
        }
        assert_eq!(answers, ["200 later 1", "200 held 1", "200 xxxxxxxxxx", "200 later 1"]);
    });
}

#[test]
fn no_held_answer_leaves_before_its_mark_and_none_after_a_failure() {
    let server = TestServer::default();
    run(async {
        let (mut requests, driving) = connect(&server).await;
        let mut held = requests.send_request(request(Method::GET, "/held/5"), true).expect("a request").0;
        server.gate.advance(4);
        for _ in 0..20 {
            assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
        }
        let now = std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut held).poll(cx)));
        assert!(now.await.is_pending());
        server.gate.fail();
        assert!(held.await.is_err());
        let _end = driving.await.expect("no panic");
    });
}

#[test]
fn as_many_streams_as_there_may_be() {
    let server = TestServer::start(Limits { pipeline_depth: 50, ..Limits::default() }, 1);
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
        assert_eq!(requests.current_max_send_streams(), 50);
        let asking = (0..500).map(|number| {
            let mut requests = requests.clone();
            tokio::spawn(async move {
                let path = format!("/big/{}", number * 100);
                (number, ask(&mut requests, Method::GET, &path).await.len())
            })
        });
        for asked in asking.collect::<Vec<_>>() {
            let (number, length) = asked.await.expect("no panic");
            assert_eq!(length, if number == 0 { 3 } else { "200 ".len() + number * 100 });
        }
    });
}

#[test]
fn a_stream_that_is_reset_drops_its_deferred_work() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        let before = server.signal.receiver_count();
        for path in ["/later/1", "/chunks-later/5/1", "/later-held/0/9"] {
            let (response, mut send) =
                requests.send_request(request(Method::GET, path), true).expect("a request");
            if path.starts_with("/later/") {
                while server.signal.receiver_count() == before {
                    ask(&mut requests, Method::GET, "/echo").await;
                }
            }
            send.send_reset(Reason::CANCEL);
            drop(response);
            while server.signal.receiver_count() > before {
                ask(&mut requests, Method::GET, "/echo").await;
            }
        }
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
    });
}

#[test]
fn a_body_that_breaks_off_is_never_taken_for_a_whole_one() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        for path in ["/breaks/70000", "/breaks/0", "/breaks-chunks/70000", "/overflows/5", "/stream-panic"] {
            let answer = ask(&mut requests, Method::GET, path).await;
            assert!(answer.ends_with("Some(INTERNAL_ERROR)"), "{path}: {answer}");
        }
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
    });
}

#[test]
fn bodies_are_streamed_to_services_that_read_them() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        let size = 8 << 20;
        let expected = |length: &str| format!("200 ({size}, {}) {length}", size * 7);
        let body = vec![7; size];
        let with_length = |path: &str, length: usize| {
            let mut request = request(Method::POST, path);
            request.headers_mut().insert("content-length", length.into());
            request
        };
        assert_eq!(
            post(&mut requests, request(Method::POST, "/upload"), body.clone()).await,
            expected("None")
        );
        let announced = with_length("/upload", size);
        assert_eq!(post(&mut requests, announced, body).await, expected(&format!("Some({size})")));
        let small = |count: usize| vec![b'x'; count];
        let over = post(&mut requests, request(Method::POST, "/upload-small"), small(1001)).await;
        assert_eq!(over, "413 too large");
        let over = post(&mut requests, with_length("/upload-small", 1001), small(1001)).await;
        assert_eq!(over, "413 the request body is too large");
        assert_eq!(
            post(&mut requests, request(Method::POST, "/ignore"), small(1 << 20)).await,
            "200 ignored"
        );
        server.signal.send_replace(1);
        let ignored = post(&mut requests, request(Method::POST, "/ignore-later/1"), small(1 << 20)).await;
        assert_eq!(ignored, "200 later 1");
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
    });
}

#[test]
fn a_reader_that_waits_holds_its_client_back() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        let mut asked = requests.clone();
        let size = 4 << 20;
        let upload = tokio::spawn(async move {
            post(&mut asked, request(Method::POST, "/upload-later/1"), vec![1; size]).await
        });
        let mut last = 0;
        // The windows and the pipe fill up; then nothing more is read.
        loop {
            let before = std::mem::replace(&mut last, server.stats.total().read_bytes);
            tokio::time::sleep(Duration::from_millis(50)).await;
            if last > 100_000 && last == before {
                break;
            }
        }
        assert!(last < 1 << 20, "{last} bytes were read");
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
        server.signal.send_replace(1);
        assert_eq!(upload.await.expect("no panic"), format!("200 ({size}, {size}) None"));
    });
}

#[test]
fn bodies_that_are_read_whole_have_limits() {
    let server = TestServer::start(Limits { body_bytes: 10, ..Limits::default() }, 1);
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        for (size, expected) in
            [(10, "200 POST /echo [xxxxxxxxxx]"), (11, "413 the request body is too large")]
        {
            let answer = post(&mut requests, request(Method::POST, "/echo"), vec![b'x'; size]).await;
            assert_eq!(answer, expected);
        }
        let mut announced = request(Method::POST, "/echo");
        announced.headers_mut().insert("content-length", 11.into());
        let (response, _send) = requests.send_request(announced, false).expect("a request");
        let answer = shown(response.await.expect("an answer")).await;
        assert_eq!(answer, "413 the request body is too large", "before it was sent");
        let mut expecting = request(Method::POST, "/echo");
        expecting.headers_mut().insert("expect", "100-continue".parse().expect("a value"));
        assert_eq!(post(&mut requests, expecting, b"abc".to_vec()).await, "200 POST /echo [abc]");
    });
}

#[test]
fn many_bodies_at_one_time_are_bounded() {
    let server = TestServer::default();
    run(async {
        let (requests, _driving) = connect(&server).await;
        // Of each there is a megabyte less one byte, and none ends.
        let mut open = Vec::new();
        for _ in 0..20 {
            let mut requests = requests.clone().ready().await.expect("room");
            let (response, mut send) =
                requests.send_request(request(Method::POST, "/echo"), false).expect("a request");
            let sending = tokio::spawn(async move {
                let mut left = (1 << 20) - 1;
                while left > 0 {
                    send.reserve_capacity(left);
                    match std::future::poll_fn(|cx| send.poll_capacity(cx)).await {
                        Some(Ok(count)) => {
                            let count = count.min(left);
                            if send.send_data(vec![b'x'; count].into(), false).is_err() {
                                return;
                            }
                            left -= count;
                        }
                        _ => return,
                    }
                }
                // Until the stream is reset, or the test ends.
                let _reason = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
            });
            open.push((response, sending));
        }
        let mut refused = 0;
        for (response, sending) in open {
            match tokio::time::timeout(Duration::from_millis(300), response).await {
                Ok(Err(error)) => {
                    assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
                    refused += 1;
                }
                Ok(Ok(response)) => panic!("{response:?}"),
                Err(_) => {}
            }
            sending.abort();
        }
        assert!((14..20).contains(&refused), "{refused} of 20, where four fit");
    });
}

#[test]
fn slow_bodies_and_clients_that_do_not_read_cost_their_stream() {
    let limits = Limits { head_timeout_ms: 300, write_timeout_ms: 300, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    run(async {
        let (mut requests, _driving) =
            connect_as(&server, h2::client::Builder::new().initial_window_size(0)).await;
        let (response, mut send) =
            requests.send_request(request(Method::POST, "/upload"), false).expect("a request");
        send.send_data("abc".into(), false).expect("a window");
        let (head, mut body) = response.await.expect("an answer").into_parts();
        assert_eq!(head.status, 400, "its reader is told that it was cut off");
        // No room is given for its text.
        let error = body.data().await.expect("something").expect_err("a reset");
        assert_eq!(error.reason(), Some(Reason::CANCEL));
        let (response, _send) =
            requests.send_request(request(Method::POST, "/echo"), false).expect("a request");
        assert_eq!(response.await.expect("an answer").status(), 408);
    });
}

#[test]
fn an_idle_connection_is_told_and_closed() {
    let limits = Limits { idle_timeout_ms: 300, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    run(async {
        let (mut requests, driving) = connect(&server).await;
        let waiting = requests.send_request(request(Method::GET, "/later/1"), true).expect("a request").0;
        tokio::time::sleep(Duration::from_millis(900)).await;
        server.signal.send_replace(1);
        assert_eq!(
            shown(waiting.await.expect("an answer")).await,
            "200 later 1",
            "one that waits is not idle"
        );
        driving.await.expect("no panic").expect("a good end");
    });
    wait_until("it is gone", || server.stats.total().connections == 0);
}

#[test]
fn a_connection_is_closed_after_an_answer_that_says_so() {
    let server = TestServer::default();
    run(async {
        let (mut requests, driving) = connect(&server).await;
        assert_eq!(ask(&mut requests, Method::GET, "/close").await, "200 closing");
        driving.await.expect("no panic").expect("a good end");
    });
}

#[test]
fn a_graceful_stop_answers_what_was_sent() {
    let mut server = TestServer::default();
    run(async {
        let (mut requests, driving) = connect(&server).await;
        let waiting: Vec<_> = ["/later/1", "/held/1", "/chunks-later/5/1"]
            .iter()
            .map(|path| requests.send_request(request(Method::GET, path), true).expect("a request").0)
            .collect();
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
        let (_idle, idle_driving) = connect(&server).await;
        server.stop();
        idle_driving.await.expect("no panic").expect("a good end");
        server.signal.send_replace(1);
        server.gate.advance(1);
        for (response, length) in waiting.into_iter().zip([11, 10, 14]) {
            assert_eq!(shown(response.await.expect("an answer")).await.len(), length);
        }
        driving.await.expect("no panic").expect("a good end");
    });
    server.join();
    assert_eq!(server.stats.total().connections, 0);
}

#[test]
fn a_stop_under_load_loses_no_request() {
    let mut server = TestServer::start(Limits::default(), 2);
    let stats = server.stats.clone();
    run(async {
        let mut clients = Vec::new();
        for _ in 0..8 {
            let (mut requests, driving) = connect(&server).await;
            clients.push(tokio::spawn(async move {
                for number in 0.. {
                    let Ok(ready) = requests.clone().ready().await else { break };
                    requests = ready;
                    let path = format!("/echo/{number}");
                    let Ok((response, _)) = requests.send_request(request(Method::GET, &path), true) else {
                        break;
                    };
                    match response.await {
                        Ok(response) => {
                            assert_eq!(shown(response).await, format!("200 GET {path} []"));
                        }
                        // Sent after the last that the server takes: it may be sent again elsewhere.
                        Err(error) if error.is_go_away() && error.reason() == Some(Reason::NO_ERROR) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                driving.await.expect("no panic").expect("a good end");
            }));
        }
        while stats.total().requests < 1_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.stop();
        for client in clients {
            client.await.expect("no panic");
        }
    });
    server.join();
}

/// The preface and settings of a client.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// `GET path` from the static table, with an authority `a`.
fn head_block(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x41, 1, b'a', 0x44, u8::try_from(path.len()).expect("short")];
    block.extend(path.as_bytes());
    block
}

/// Sends what `flood` makes, again and again, until the server ends the connection; gives the reasons of its
/// GOAWAY frames.
fn flooded(server: &TestServer, rounds: u32, mut flood: impl FnMut(u32) -> Vec<u8>) -> Vec<u32> {
    let mut client = server.connect();
    client.send(HELLO);
    let mut writer = client.stream.try_clone().expect("a live socket");
    let sending: Vec<Vec<u8>> = (0..rounds).map(&mut flood).collect();
    let sender = std::thread::spawn(move || {
        for bytes in sending {
            if std::io::Write::write_all(&mut writer, &bytes).is_err() {
                return;
            }
        }
    });
    let mut bytes = Vec::new();
    // A reset may cut it off.
    let _end = client.stream.read_to_end(&mut bytes);
    sender.join().expect("no panic");
    let (mut reasons, mut rest) = (Vec::new(), &bytes[..]);
    while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some((payload, after)) = after.split_at_checked(length) else { break };
        if *kind == 7 {
            reasons.push(u32::from_be_bytes(payload[4..8].try_into().expect("four bytes")));
        }
        rest = after;
    }
    reasons
}

const ENHANCE_YOUR_CALM: u32 = 11;

#[test]
fn floods_end_their_own_connection() {
    let server = TestServer::default();
    let ping = |_| frame(6, 0, 0, &[0; 8]).repeat(100);
    assert_eq!(flooded(&server, 2_000, ping), [ENHANCE_YOUR_CALM], "pings");
    let settings = |_| frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]).repeat(100);
    assert_eq!(flooded(&server, 2_000, settings), [ENHANCE_YOUR_CALM], "settings");
    let priorities = |_| frame(2, 0, 1, &[0, 0, 0, 0, 9]).repeat(100);
    assert_eq!(flooded(&server, 2_000, priorities), [ENHANCE_YOUR_CALM], "priorities");
    let unknown = |_| frame(0x77, 0, 0, &[0; 100]).repeat(100);
    assert_eq!(flooded(&server, 2_000, unknown), [ENHANCE_YOUR_CALM], "unknown frames");
    let reset_at_once = |round: u32| {
        let pair =
            |id: u32| [frame(1, 5, id, &head_block("/later/9")), frame(3, 0, id, &[0, 0, 0, 8])].concat();
        (0..50).flat_map(|number| pair((round * 50 + number) * 2 + 1)).collect()
    };
    assert_eq!(flooded(&server, 1_000, reset_at_once), [ENHANCE_YOUR_CALM], "streams that are reset at once");
    let mut client = server.connect();
    client.send(get("/echo"));
    assert_eq!(client.answer(), "200 GET /echo []", "nobody else is hurt");
    wait_until("they are gone", || server.stats.total().connections == 1);
}

/// Each reset only when the request was taken.
#[test]
fn requests_that_are_reset_one_by_one_are_bounded() {
    let server = TestServer::default();
    run(async {
        let (mut requests, driving) = connect(&server).await;
        let mut count = 0;
        while let Ok(ready) = requests.clone().ready().await {
            requests = ready;
            let taken = server.stats.total().requests;
            let Ok((_response, mut send)) = requests.send_request(request(Method::GET, "/later/9"), true)
            else {
                break;
            };
            while server.stats.total().requests == taken && !driving.is_finished() {
                tokio::task::yield_now().await;
            }
            send.send_reset(Reason::CANCEL);
            count += 1;
            assert!(count < 1_000, "without end");
        }
        let error = driving.await.expect("no panic").expect_err("not a good end");
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
        assert!(count > 100, "{count} are no flood");
    });
}

#[test]
fn heads_without_an_end_are_bounded() {
    let server = TestServer::default();
    let literal = [&[0, 1, b'x', 100][..], &[b'y'; 100]].concat();
    let endless = |round: u32| match round {
        0 => frame(1, 1, 1, &head_block("/echo")),
        _ => frame(9, 0, 1, &literal.repeat(10)),
    };
    // GOAWAY with a reason, or the end at once.
    let reasons = flooded(&server, 10_000, endless);
    assert!(reasons.iter().all(|reason| *reason != 0), "{reasons:?}");
    let empty = |round: u32| match round {
        0 => frame(1, 1, 1, &head_block("/echo")),
        _ => frame(9, 0, 1, &[]).repeat(100),
    };
    let reasons = flooded(&server, 10_000, empty);
    assert!(reasons.iter().all(|reason| *reason != 0), "{reasons:?}");
    wait_until("they are gone", || server.stats.total().connections == 0);
    assert_eq!(server.stats.total().requests, 0);
}

#[test]
fn empty_pieces_of_a_body_are_bounded() {
    let server = TestServer::default();
    let endless = |round: u32| match round {
        0 => [&[0x83][..], &head_block("/upload")[1..]].concat(),
        _ => Vec::new(),
    };
    let flood = |round: u32| match round {
        0 => frame(1, 4, 1, &endless(0)),
        _ => frame(0, 0, 1, &[]).repeat(100),
    };
    assert_eq!(flooded(&server, 10_000, flood), [ENHANCE_YOUR_CALM]);
}

/// A client that takes no answers, with all the room in its windows that there can be.
#[test]
fn answers_that_are_not_taken_are_bounded() {
    let limits = Limits { write_timeout_ms: 500, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let mut client = server.connect();
    client.send(HELLO);
    client.send(frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    client.send(frame(8, 0, 0, &[0x7f, 0, 0, 0]));
    let head = head_block("/big/100000");
    let all: Vec<u8> = (0..100_000).flat_map(|number| frame(1, 5, number * 2 + 1, &head)).collect();
    let mut writer = client.stream.try_clone().expect("a live socket");
    let sender = std::thread::spawn(move || drop(std::io::Write::write_all(&mut writer, &all)));
    wait_until("they come", || server.stats.total().requests > 0);
    wait_until("the connection is closed", || server.stats.total().connections == 0);
    let taken = server.stats.total().requests;
    assert!(taken * 100_000 < 64 << 20, "{taken} answers of 100 KB were made");
    drop(client);
    sender.join().expect("no panic");
}

#[test]
fn only_a_connection_that_begins_so_speaks_http_2() {
    let server = TestServer::default();
    let late = [get("/echo").as_bytes(), HELLO].concat();
    let refused = "505 only HTTP/1.0 and HTTP/1.1 are spoken here (close)";
    assert_eq!(server.exchange(&late), format!("200 GET /echo [] | {refused}"));
    let other = "PRI * HTTP/2.1\r\n\r\n";
    assert_eq!(server.exchange(other.as_bytes()), refused);
    // A preface in pieces is one; what follows it need not be HTTP/2.
    let mut client = server.connect();
    for byte in HELLO {
        client.send([*byte]);
    }
    let mut head = [0; 9];
    client.stream.read_exact(&mut head).expect("settings");
    assert_eq!(head[3], 4);
    assert!(flooded(&server, 1, |_| b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()).iter().all(|it| *it != 0));
    let mut client = server.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
    let mut rest = Vec::new();
    let _end = client.stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
}

#[test]
fn a_preface_that_does_not_come_to_its_end_is_ended() {
    let server = TestServer::start(Limits { head_timeout_ms: 300, ..Limits::default() }, 1);
    for begin in [&HELLO[..14], &HELLO[..20]] {
        let mut client = server.connect();
        client.send(begin);
        let _end = client.stream.read_to_end(&mut Vec::new());
    }
    wait_until("they are gone", || server.stats.total().connections == 0);
}

/// All cases of h2spec, the strict ones as well. Without TLS, what is no preface is HTTP/1, which answers
/// 400.
#[test]
fn h2spec_finds_nothing() {
    let server = TestServer::default();
    let folder = Command::new("go").args(["env", "GOPATH"]).output().expect("go is installed");
    let folder = String::from_utf8(folder.stdout).expect("a path");
    let port = server.listens.port().to_string();
    let mut command = Command::new(Path::new(folder.trim()).join("bin/h2spec"));
    command.args(["--strict", "--host", "127.0.0.1", "--port", &port, "--timeout", "10", "--path", "/echo"]);
    if is_secure() {
        command.args(["--tls", "--insecure"]);
    }
    let output = command.output().expect("scripts/install-tools installs h2spec");
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, count) = said.rsplit_once("Finished").expect("a summary");
    let expected = if is_secure() { "146 tests, 146 passed" } else { "146 tests, 145 passed" };
    assert!(count.contains(expected), "{said}");
    let is_known = |line: &&str| !is_secure() && line.ends_with("2: Sends invalid connection preface");
    let failed = said.lines().filter(|line| line.contains('×') && !is_known(line)).count();
    assert_eq!(failed, 0, "{said}");
}
