//! WebSocket and other protocols through a `proxy`: a real application behind and a real client, what the
//! limits of an endpoint do to them, and which protocols never pass.

use super::Front;
use super::spellings::App;
use super::upstream::Scripted;
use forebay_tests::{Certificates, Folder, Start, wait_for};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tungstenite::error::Error;
use tungstenite::handshake::client::Response;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{ClientRequestBuilder, HandshakeError, Message, WebSocket, client};

trait Io: Read + Write + Send {}
impl<T: Read + Write + Send> Io for T {}

type Socket = WebSocket<Box<dyn Io>>;

fn app() -> App {
    app_with(|command| command)
}

/// The packaged interpreter: another installed one would not find the packaged libraries.
fn app_with(change: impl FnOnce(&mut Command) -> &mut Command) -> App {
    App::start("websockets", |_, _| {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(forebay_tests::root().join("tests/front/apps/websocket_app.py"));
        change(&mut command);
        command
    })
}

fn front(app: &App, more: &str) -> Front {
    Front::start(&endpoint(&format!("http://{}", app.address), more))
}

fn endpoint(url: &str, more: &str) -> String {
    format!("[[endpoint]]\nroute = '* /ws/{{path...}}'\nproxy = '{url}'\n{more}\n")
}

fn dial(address: SocketAddr, ca: Option<&Certificates>) -> Box<dyn Io> {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a live socket");
    let Some(certificates) = ca else { return Box::new(stream) };
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(&certificates.ca).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
    Box::new(StreamOwned::new(connection, stream))
}

/// The socket and the 101, or the answer that refused the upgrade.
fn try_open(
    io: Box<dyn Io>,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(Socket, Response), Box<Response>> {
    let uri = format!("ws://localhost{path}").parse().expect("a URI");
    let mut request = ClientRequestBuilder::new(uri);
    for (name, value) in headers {
        request = request.with_header(*name, *value);
    }
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    match client::client_with_config(request, io, Some(config)) {
        Ok(opened) => Ok(opened),
        Err(HandshakeError::Failure(Error::Http(response))) => Err(response),
        Err(error) => panic!("{path}: {error}"),
    }
}

#[track_caller]
fn open(front: &Front, path: &str) -> Socket {
    try_open(dial(front.server.address, None), path, &[]).expect("a 101").0
}

#[track_caller]
fn status(front: &Front, path: &str, headers: &[(&str, &str)]) -> u16 {
    match try_open(dial(front.server.address, None), path, headers) {
        Ok((_, response)) => response.status().as_u16(),
        Err(response) => response.status().as_u16(),
    }
}

#[track_caller]
fn echo(socket: &mut Socket, message: Message) {
    socket.send(message.clone()).expect("an open socket");
    let answer = socket.read().expect("an open socket");
    assert!(answer == message, "{} bytes came back as {}", message.len(), answer.len());
}

/// Reads to the end. Returns the close code of the application.
fn close_code(socket: &mut Socket) -> Option<CloseCode> {
    let mut code = None;
    loop {
        match socket.read() {
            Ok(Message::Close(frame)) => code = frame.map(|frame| frame.code),
            Ok(_) => {}
            Err(Error::ConnectionClosed) => return code,
            // After a close frame, TLS may end without close_notify.
            Err(_) if code.is_some() => return code,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn messages_pass_both_ways_with_tls_and_without_on_either_side() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let plain = app();
    let secure = app_with(|command| {
        command.env("CERTIFICATE", &certificates.certificate).env("KEY", &certificates.key)
    });
    let ca = format!("ca = '{}'", certificates.ca.display());
    let (certificate, key) = (certificates.certificate.display(), certificates.key.display());
    let tls = format!("[server.tls]\ncertificate = '{certificate}'\nkey = '{key}'\n");
    let listen = |start: Start| start.listen("127.0.0.1:0,https://127.0.0.1:0");
    let large = Message::binary((0..5_000_000_u32).map(|at| (at >> 3) as u8).collect::<Vec<_>>());
    for (url, more) in [
        (format!("http://{}", plain.address), ""),
        (format!("https://localhost:{}", secure.address.port()), ca.as_str()),
    ] {
        let front = Front::start_with(&format!("{tls}{}", endpoint(&url, more)), listen);
        let https = front.server.address_behind("listening on https://").expect("it says so");
        for (address, ca) in [(front.server.address, None), (https, Some(&certificates))] {
            let fields = [("Sec-WebSocket-Protocol", "chat"), ("Origin", "http://a.example"), ("X-Own", "1")];
            let (mut socket, response) = try_open(dial(address, ca), "/ws/echo", &fields).expect("a 101");
            assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
            assert!(!response.headers().contains_key("content-length"), "{response:?}");
            echo(&mut socket, Message::text("zwölf"));
            echo(&mut socket, large.clone());
            socket.send(Message::Ping("p".into())).expect("an open socket");
            assert_eq!(socket.read().expect("an open socket"), Message::Pong("p".into()));
            socket.close(None).expect("an open socket");
            assert_eq!(close_code(&mut socket), None, "the client ended it");

            let (mut socket, _) = try_open(dial(address, ca), "/ws/seen", &fields).expect("a 101");
            let seen = socket.read().expect("an open socket").into_text().expect("text");
            let seen: Vec<(String, String)> = serde_json::from_str(&seen).expect("JSON");
            let scheme = if ca.is_some() { "https" } else { "http" };
            for (name, expected) in [
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("host", "localhost"),
                ("via", "1.1 forebay"),
                ("x-forwarded-for", "127.0.0.1"),
                ("x-forwarded-proto", scheme),
                ("origin", "http://a.example"),
                ("x-own", "1"),
                ("sec-websocket-version", "13"),
            ] {
                let found = seen.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str());
                assert_eq!(found.collect::<Vec<_>>(), [expected], "{name}: {seen:?}");
            }
        }
    }
}

#[test]
fn the_application_may_end_it_first_or_refuse_it() {
    let app = app();
    let front = front(&app, "");
    let mut socket = open(&front, "/ws/bye");
    echo(&mut socket, Message::text("a"));
    assert_eq!(close_code(&mut socket), Some(CloseCode::Library(4001)));
    let refusal = try_open(dial(front.server.address, None), "/ws/refused", &[]).err().expect("a refusal");
    assert_eq!(
        (refusal.status().as_u16(), &refusal.headers()["x-why"]),
        (403, &"not today".parse().expect("a value"))
    );
    // The connection continues in HTTP.
    let mut client = front.server.client();
    let ask = "GET /ws/refused HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
               Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    client.send(ask.repeat(2).as_bytes()).expect("a live socket");
    for _ in 0..2 {
        assert_eq!(client.receive(false).expect("an answer").text(), "refused");
    }
    // When an application dies, its sockets end.
    let mut socket = open(&front, "/ws/echo");
    drop(app);
    assert!(socket.read().is_err());
    assert_eq!(status(&front, "/ws/echo", &[]), 502);
}

#[test]
fn guard_rate_and_concurrency_are_those_of_the_endpoint() {
    let app = app();
    let front = front(
        &app,
        "guard = { header = 'X-Secret', secret = 'sesame', status = 401 }\nrate = '4/h'\nconcurrency = 1\n\
         cache = { local = '10m' }",
    );
    let secret = [("X-Secret", "sesame")];
    assert_eq!(status(&front, "/ws/echo", &[]), 401);
    let (mut socket, _) = try_open(dial(front.server.address, None), "/ws/echo", &secret).expect("a 101");
    echo(&mut socket, Message::text("a"));
    assert_eq!(status(&front, "/ws/echo", &secret), 503, "the one place is taken");
    echo(&mut socket, Message::text("b"));
    drop(socket);
    let mut asked = 2;
    wait_for("its place is given back", || {
        asked += 1;
        assert!(asked <= 100, "never");
        (status(&front, "/ws/echo", &secret) != 503).then_some(())
    });
    wait_for("the rate is used up", || (status(&front, "/ws/echo", &secret) == 429).then_some(()));
}

#[test]
fn an_upgrade_has_one_line_in_the_log_when_it_ends() {
    let app = app();
    let endpoint = endpoint(&format!("http://{}", app.address), "");
    let log = "[log]\nformat = 'json'\naccess = 1\nrequest_id = 'X-Request-Id'\n";
    let front = Front::start(&format!("{log}{endpoint}"));
    let (mut socket, response) = try_open(dial(front.server.address, None), "/ws/echo", &[]).expect("a 101");
    echo(&mut socket, Message::binary(vec![7; 10_000]));
    assert!(!front.server.output().contains("\"message\":\"request\""), "{}", front.server.output());
    drop(socket);
    let line = wait_for("it is logged", || {
        let output = front.server.output();
        output.lines().find(|line| line.contains("\"message\":\"request\"")).map(str::to_owned)
    });
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (&line["status"], &line["route"], &line["path"]),
        (&101.into(), &"* /ws/{path...}".into(), &"/ws/echo".into())
    );
    assert!(line["bytes"].as_u64().is_some_and(|bytes| (10_000..10_100).contains(&bytes)), "{line}");
    assert_eq!(line["request_id"].as_str(), response.headers()["x-request-id"].to_str().ok());
}

#[test]
fn a_reload_keeps_open_sockets_and_a_stop_ends_them() {
    let app = app();
    let front = front(&app, "");
    let mut sockets: Vec<_> = (0..20).map(|_| open(&front, "/ws/echo")).collect();
    front.folder.write("front.toml", "[[endpoint]]\nroute = 'GET /other'\nconstant = {}\n");
    front.server.admin("POST", "/reload").expect(200);
    sockets.iter_mut().for_each(|socket| echo(socket, Message::text("still")));
    assert_eq!(status(&front, "/ws/echo", &[]), 404, "the new config has no such route");
    let ended = front.server.stop();
    assert!(ended.status.success(), "{ended:?}");
    for mut socket in sockets {
        assert!(socket.read().is_err());
    }
}

#[test]
fn a_socket_in_which_nothing_moves_is_closed() {
    let app = app();
    let front = front(&app, "tunnel_timeout = '15s'");
    let mut socket = open(&front, "/ws/echo");
    echo(&mut socket, Message::text("a"));
    assert!(socket.read().is_err());
}

/// Protocols that would carry requests past the guards: HTTP/2 without TLS, and a protocol that an upstream
/// switches to without a request for it.
#[test]
fn a_protocol_that_carries_requests_is_never_passed_on() {
    const HIDDEN: &str = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n";
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let upstream = Scripted::new(move |seen, stream| {
        // The upstream switches protocols for any upgrade request.
        let answer = match seen.header("upgrade") {
            Some(_) => switch,
            None => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let front = Front::start(&endpoint(&format!("http://{}", upstream.address), ""));
    let ask = |connection: &str, protocol: &str| {
        let mut client = front.server.client();
        let head = format!(
            "GET /ws/a HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        );
        client.send((head + HIDDEN).as_bytes()).expect("a live socket");
        let first = client.receive(false).expect("an answer").status;
        (first, client.receive(false).ok().map(|answer| answer.status))
    };
    for protocol in ["h2c", "H2C", "HTTP/2.0", "h2c, TLS/1.2"] {
        assert_eq!(ask("Upgrade, HTTP2-Settings", protocol), (200, Some(404)), "{protocol}");
    }
    assert_eq!(ask("close, Upgrade", "websocket"), (200, None));
    assert_eq!(ask("keep-alive", "websocket"), (200, Some(404)));
    // The following bytes are read as HTTP here, and none of them reaches the upstream.
    assert_eq!(ask("Upgrade", "websocket"), (502, Some(404)));
    assert_eq!(ask("Upgrade, HTTP2-Settings", "websocket, h2c"), (502, Some(404)));
    let seen = upstream.seen();
    assert!(seen.iter().all(|seen| seen.head.starts_with("GET /ws/a ")), "{seen:?}");
    assert!(
        seen.iter().all(|seen| seen.header("upgrade").is_none_or(|found| found == "websocket")),
        "{seen:?}"
    );
}
