//! Configs, certificates and binaries that change under a constant load: no request fails, is executed
//! twice or is lost, and no connection ends in the middle of a request.
//!
//! Every request adds one to a counter in a hot table, so that the database shows at the end how many were
//! executed by all processes together. `make test` sends a thousand requests a second, `make
//! changes-under-load` 50,000.

mod http2;

use super::Front;
use super::reload::reload;
use super::tls::{https, pair, subject};
use forebay_tests::{Certificates, Folder, Start, Stores, am_root, binary, number, wait_for};
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// The rate and size of the load.
struct Size {
    rate_per_s: u64,
    seconds: u64,
}

impl Size {
    fn new() -> Size {
        Size {
            rate_per_s: number("FOREBAY_CHANGES_RATE", 1_000),
            seconds: number("FOREBAY_CHANGES_SECONDS", 4),
        }
    }
}

const PATH: &str = "/hits/1";
const CONNECTIONS: u64 = 64;

/// The least time between two rounds of changes. Each round closes every connection, and the tester also
/// needs time for its requests.
const ROUND: Duration = Duration::from_secs(1);

/// A config with which `GET /version` answers this number.
fn config(tls: &str, version: usize) -> String {
    format!(
        "[server.tls]\n{tls}\n\
         [table.hits]\ncolumns = {{ id = 'bigint key', count = 'bigint = 0' }}\n\
         [[endpoint]]\nroute = 'POST /hits'\ninsert = 'hits'\nvalues = {{ id = '$id' }}\n\
         [[endpoint]]\nroute = 'POST /hits/{{id}}'\nincrement = 'hits'\ncolumn = 'count'\n\
         [[endpoint]]\nroute = 'GET /version'\nconstant = {{ version = {version} }}\n"
    )
}

struct Changed {
    front: Front,
    files: Folder,
    certificates: Certificates,
    version: usize,
    tls: bool,
}

impl Changed {
    /// A server with one row, started from a copy of the binary that can be replaced.
    fn start(tls: bool) -> Changed {
        let files = Folder::new();
        let certificates = Certificates::new(files.path());
        let program = files.path().join("forebay");
        std::fs::copy(binary(), &program).expect("a copy of the binary");
        let (folder, stores) = (Folder::new(), Stores::sqlite());
        let file = folder.write("front.toml", &config(&pair(&certificates), 0));
        let start = Start::new(program, &folder, &file).stores(&stores, &folder).workers(1);
        let server = start.listen("127.0.0.1:0,https://127.0.0.1:0").start();
        let front = Front { server, folder, stores };
        front.server.wait_healthy();
        front.server.client().post_json("/hits", r#"{"id":1}"#).expect(201);
        Changed { front, files, certificates, version: 0, tls }
    }

    fn address(&self) -> SocketAddr {
        if self.tls { https(&self.front) } else { self.front.server.address }
    }

    fn write_config(&mut self) {
        self.version += 1;
        self.front.folder.write("front.toml", &config(&pair(&self.certificates), self.version));
    }

    fn version(&self) -> Value {
        self.front.server.client().get("/version").expect(200)["version"].clone()
    }

    /// Applies a new config through the admin listener and one by a signal, and tries a broken one
    /// by each.
    fn change_config(&mut self) {
        let server = &self.front.server;
        let refused = server.count_lines("not reloaded");
        self.front.folder.write("front.toml", "endpoint = 1");
        reload(server).expect_problem(422, "front.toml:1:");
        server.signal(Signal::HUP);
        server.wait_for_lines(refused + 2, "not reloaded");
        self.write_config();
        reload(&self.front.server).expect(200);
        assert_eq!(self.version(), self.version, "at once");
        self.write_config();
        self.front.server.signal(Signal::HUP);
        wait_for("it serves the new config", || (self.version() == self.version).then_some(()));
    }

    /// A new key and a certificate for it, of the same authority.
    fn change_certificate(&self, name: &str) {
        let script = format!(
            "openssl req -newkey rsa:2048 -nodes -subj /CN={name} -keyout new.key -out new.csr && \
             openssl x509 -req -in new.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names \
             -out new.crt && mv new.key server.key && mv new.crt server.crt"
        );
        let made = Command::new("sh").args(["-ec", &script]).current_dir(self.files.path()).output();
        let made = made.expect("sh can be run");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let expected = format!("CN={name}");
        wait_for("the new certificate is in use", || {
            (subject(&self.front, "localhost") == expected).then_some(())
        });
    }

    /// Replaces the binary, and has the new one take over.
    fn change_binary(&self) {
        let (server, running) = (&self.front.server, format!("/proc/{}/exe", self.front.server.pid()));
        let [program, next] = ["forebay", "next"].map(|name| self.files.path().join(name));
        std::fs::copy(binary(), &next).expect("a copy of the binary");
        std::fs::rename(&next, &program).expect("a file");
        let silent = self.dial();
        let before = server.count_lines("admin on http://");
        server.signal(Signal::USR2);
        ends_well(silent);
        server.wait_for_lines(before + 1, "admin on http://");
        server.wait_healthy();
        assert_eq!(std::fs::read_link(running).expect("a link"), program, "the new file");
    }

    /// A connection that has received an answer.
    fn dial(&self) -> Box<dyn Stream> {
        let stream = TcpStream::connect(self.address()).expect("no connection is refused");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a live socket");
        let mut stream: Box<dyn Stream> = match self.tls {
            false => Box::new(stream),
            true => {
                let name = "localhost".try_into().expect("a name");
                let session = ClientConnection::new(self.trust("http/1.1"), name).expect("a session");
                Box::new(StreamOwned::new(session, stream))
            }
        };
        stream.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a live connection");
        let mut seen = Vec::new();
        while !seen.ends_with(b"}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            seen.extend(byte);
        }
        stream
    }

    /// The TLS config of a client of this protocol, which trusts the test's authority.
    fn trust(&self, protocol: &str) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(&self.certificates.ca).expect("a certificate");
        roots.add(authority).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Arc::new(config)
    }

    /// Changes config, certificate and binary repeatedly while `load` runs, which returns the number of
    /// answered requests. The load is repeated until everything has changed twice.
    fn check(mut self, load: impl Fn() -> u64 + Send + 'static) {
        let changed = Arc::new(AtomicBool::new(false));
        let is_over = changed.clone();
        let loading = thread::spawn(move || {
            let mut answered = load();
            while !is_over.load(SeqCst) {
                answered += load();
            }
            answered
        });
        let mut rounds = 0;
        while !loading.is_finished() {
            let next = Instant::now() + ROUND;
            self.change_config();
            if self.tls {
                self.change_certificate(&format!("changed{rounds}"));
            }
            self.change_binary();
            rounds += 1;
            changed.store(rounds >= 2, SeqCst);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let answered = loading.join().expect("every request was answered well");
        self.front.server.drain();
        let database = rusqlite::Connection::open(self.front.folder.database()).expect("a file");
        let counted: i64 =
            database.query_row("SELECT count FROM hits", [], |row| row.get(0)).expect("a counter");
        eprintln!("{rounds} rounds of changes, {answered} requests answered, {counted} counted");
        assert_eq!(counted, answered as i64, "every answered request was done once, and no other");
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Asserts that a connection without a request is closed in order (by close_notify with TLS), and
/// not reset.
fn ends_well(mut silent: Box<dyn Stream>) {
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).expect("a good end");
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

/// How many requests `forebay load` had answered.
fn load(url: &str, authority: &Path, result: &Path) -> u64 {
    let Size { rate_per_s, seconds } = Size::new();
    // A connection that is silent for 0.2 s may be closed by a process that stops: the tester must not stall
    // on a busy machine.
    let mut load = Command::new("nice");
    load.args(["-n", if am_root() { "-10" } else { "0" }]).arg(binary()).arg("load");
    load.args(["-w", "1", "-c", &CONNECTIONS.to_string(), "-R", &rate_per_s.to_string()]);
    load.args(["-d", &format!("{seconds}s"), "--warmup", "0s", "-t", "60s", "-m", "POST", "--json"]);
    load.arg(result).arg(url).env("SSL_CERT_FILE", authority);
    let output = load.stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("the load tester runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&std::fs::read(result).expect("a result")).expect("JSON");
    let (requests, connects) = (&told["requests"], &told["connects"]);
    let shown = format!("{requests} {connects} {} {}", told["errors_by_kind"], told["statuses"]);
    for what in ["errors", "timeouts", "in_flight", "never_sent", "unexpected"] {
        assert_eq!(requests[what], 0, "{what}: {shown}");
    }
    assert_eq!(connects["failed"], 0, "{shown}");
    eprintln!(
        "{url}: {:.0} answers/s, p99 {:.1} ms, longest {:.0} ms: {shown}",
        told["requests"]["rate_per_s"].as_f64().unwrap_or_default(),
        told["latency_ms"]["percentiles"]["99"].as_f64().unwrap_or_default(),
        told["latency_ms"]["max"].as_f64().unwrap_or_default()
    );
    requests["completed"].as_u64().expect("a number")
}

fn check_http1(tls: bool) {
    let changed = Changed::start(tls);
    let scheme = if tls { "https" } else { "http" };
    let url = format!("{scheme}://localhost:{}{PATH}", changed.address().port());
    let (authority, result) = (changed.certificates.ca.clone(), changed.files.path().join("load.json"));
    changed.check(move || load(&url, &authority, &result));
}

#[test]
fn nothing_fails_over_http_1_while_everything_changes() {
    check_http1(false);
}

#[test]
fn nothing_fails_over_tls_while_everything_changes() {
    check_http1(true);
}

#[test]
fn nothing_fails_over_http_2_while_everything_changes() {
    let changed = Changed::start(true);
    let (address, tls) = (changed.address(), changed.trust("h2"));
    changed.check(move || {
        let Size { rate_per_s, seconds } = Size::new();
        let told = http2::load(address, &tls, PATH, rate_per_s, seconds);
        eprintln!("HTTP/2: {told:?}");
        told.answered
    });
}
