//! HTTP/2 as clients speak it: the same answers as in HTTP/1, streams that do not wait for each other, and
//! endings. Over TLS by ALPN, without TLS by prior knowledge.
//!
//! `bodies`: request bodies. `frames`: what no client library sends: floods, broken prefaces, h2spec.

mod bodies;
mod frames;

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

/// A body; or its received length and the error that broke it.
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
            // A body whose request is answered early is not sent to its end.
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
fn an_idle_connection_is_told_and_closed() {
    let limits = Limits { idle_timeout_ms: 1_500, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    run(async {
        let (mut requests, driving) = connect(&server).await;
        let waiting = requests.send_request(request(Method::GET, "/later/1"), true).expect("a request").0;
        tokio::time::sleep(Duration::from_millis(2_500)).await;
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
                        // Sent after the last request that the server accepts: it may be sent again
                        // elsewhere.
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
