//! Certificates by ACME, from a real authority: Let's Encrypt's pebble.

use forebay_tests::{Certificates, Folder, Server, Start, binary, free_port, wait_for};
use serde_json::Value;
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const NAME: &str = "shop.example";
const ENDPOINTS: &str = "[[endpoint]]\nroute = 'GET /a'\nconstant = { text = 'a' }\n";

/// The folders and ports, chosen before any process runs.
struct Site {
    folder: Folder,
    certificates: Certificates,
    /// The ports of the server's HTTPS, of the ACME directory, and of pebble's management.
    ports: [u16; 3],
}

/// A process that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The error means that the process has already ended.
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

impl Site {
    fn new() -> Site {
        let folder = Folder::new();
        let certificates = Certificates::new(folder.path());
        let ports = [free_port(), free_port(), free_port()];
        Site { folder, certificates, ports }
    }

    fn start(&self) -> Server {
        let [https, directory, ..] = self.ports;
        let file = self.folder.write(
            "front.toml",
            &format!(
                "[server.tls]\nacme = 'https://127.0.0.1:{directory}/dir'\nnames = ['{NAME}', 'www.{NAME}']\n\
                 {ENDPOINTS}"
            ),
        );
        let start = Start::new(binary(), &self.folder, &file);
        let start = start.listen(&format!("https://127.0.0.1:{https},127.0.0.1:0"));
        start.environment("SSL_CERT_FILE", &self.certificates.ca.display().to_string()).start()
    }

    /// Starts the authority, whose certificates are valid for `life_s` seconds. All names resolve
    /// to this machine.
    #[track_caller]
    fn authority(&self, life_s: u64) -> Running {
        let [https, directory, management] = self.ports;
        let (certificate, key) = (self.certificates.certificate.display(), self.certificates.key.display());
        let config = self.folder.write(
            "pebble.json",
            &format!(
                "{{\"pebble\": {{\"listenAddress\": \"127.0.0.1:{directory}\", \"managementListenAddress\": \
                 \"127.0.0.1:{management}\", \"certificate\": \"{certificate}\", \"privateKey\": \"{key}\", \
                 \"httpPort\": 1, \"tlsPort\": {https}, \"certificateValidityPeriod\": {life_s}}}}}"
            ),
        );
        let mut pebble = Command::new("pebble");
        pebble.args(["-dnsserver", &resolver().to_string(), "-config"]).arg(config);
        pebble.env("PEBBLE_VA_NOSLEEP", "1").stdout(Stdio::null()).stderr(Stdio::null());
        let running = Running(pebble.spawn().expect("scripts/install-tools installs pebble"));
        wait_for("the directory listens", || TcpStream::connect(("127.0.0.1", directory)).ok());
        running
    }

    /// The root certificate of the authority, which changes with each of its starts.
    fn root(&self) -> PathBuf {
        let url = format!("https://localhost:{}/roots/0", self.ports[2]);
        let root = curl(&["--cacert", &self.certificates.ca.display().to_string(), &url]);
        self.folder.write("root.pem", &good(&root))
    }

    /// The answer that a client that trusts this root gets.
    fn ask(&self, root: &Path, name: &str) -> Output {
        let https = self.ports[0];
        let leads_here = format!("{name}:{https}:127.0.0.1");
        let root = root.display().to_string();
        curl(&["--cacert", &root, "--resolve", &leads_here, &format!("https://{name}:{https}/a")])
    }

    /// What openssl prints about the certificate that clients get.
    fn seen(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &format!("127.0.0.1:{}", self.ports[0])]).args(arguments);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("openssl is installed");
        child.stdin.take().expect("a pipe").write_all(b"").expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The certificate that clients get, as PEM.
    fn certificate(&self) -> String {
        let seen = self.seen(&["-servername", NAME]);
        let (from, to) =
            (seen.find("-----BEGIN").expect("a certificate"), seen.find("-----END").expect("one"));
        seen[from..to].to_owned()
    }
}

/// A DNS server that resolves every name to this machine, until the process ends (RFC 1035 section 4).
fn resolver() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let question = &buffer[..length];
            let name_bytes = question[12..].iter().position(|byte| *byte == 0).expect("a name");
            let (kind_at, question_end) = (12 + name_bytes + 1, 12 + name_bytes + 1 + 4);
            let is_address = question[kind_at..kind_at + 2] == [0, 1];
            // An answer without an error, with the question and one record at most.
            let mut answer =
                [&question[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]].concat();
            answer.extend_from_slice(&question[12..question_end]);
            if is_address {
                // A pointer to the question's name, type A, class IN, TTL 60 s, 4 bytes.
                answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            }
            // An error means that the client no longer waits.
            let _sent = socket.send_to(&answer, client);
        }
    });
    address
}

fn curl(arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60"]).args(arguments).output().expect("curl is installed")
}

#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// The states that `/ready` shows.
fn conditions(server: &Server) -> Vec<String> {
    let ready = server.admin("GET", "/ready").json();
    let conditions = ready["conditions"].as_array().expect("conditions");
    conditions.iter().map(|condition| condition["state"].as_str().expect("a state").to_owned()).collect()
}

#[test]
fn a_directory_that_is_away_holds_up_no_start_and_no_request() {
    let site = Site::new();
    let server = site.start();
    wait_for("it is said that a certificate is missing", || {
        (conditions(&server) == ["certificate due"]).then_some(())
    });
    let ready = server.admin("GET", "/ready");
    assert_eq!((ready.status, ready.json()["status"].clone()), (200, Value::from("degraded")));
    server.client().get("/a").expect(200);
    // The placeholder certificate is not signed by an authority.
    let https = format!("https://127.0.0.1:{}/a", site.ports[0]);
    assert_eq!(good(&curl(&["--insecure", &https])), "{\"text\":\"a\"}");
    let running = site.authority(86_400);
    wait_for("a certificate is there", || conditions(&server).is_empty().then_some(()));
    let root = site.root();
    for name in [NAME, "www.shop.example"] {
        let answer =
            wait_for("it is in use", || Some(site.ask(&root, name)).filter(|output| output.status.success()));
        assert_eq!(good(&answer), "{\"text\":\"a\"}", "{name}");
    }
    server.wait_for_output("signed a certificate for shop.example, www.shop.example");
    // One line when the condition begins, one when it ends.
    server.wait_for_lines(2, "certificate due");
    for file in ["certificate.pem", "account.json"] {
        let file = site.folder.data().join("acme").join(file);
        let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    // The challenge certificate is served for no other name, and for none after the validation.
    for name in [NAME, "other.example"] {
        let seen = site.seen(&["-servername", name, "-alpn", "acme-tls/1"]);
        assert!(!seen.contains("BEGIN CERTIFICATE"), "{name}: {seen}");
    }
    drop(running);
    let before = site.certificate();
    server.stop();
    let server = site.start();
    assert_eq!(site.certificate(), before, "the certificate on disk is used at once");
    assert_eq!(good(&site.ask(&root, NAME)), "{\"text\":\"a\"}");
    assert_eq!(server.count_lines("certificate due"), 0, "{}", server.output());
}

#[test]
fn a_certificate_is_renewed_ahead_of_its_end() {
    let site = Site::new();
    let _running = site.authority(30);
    let server = site.start();
    server.wait_for_output("signed a certificate for");
    server.wait_for_output("the certificates have changed and are in use");
    let first = site.certificate();
    let root = site.root();
    server.wait_for_lines(2, "the certificates have changed and are in use");
    assert_ne!(site.certificate(), first);
    assert_eq!(good(&site.ask(&root, NAME)), "{\"text\":\"a\"}");
    assert_eq!(server.count_lines("certificate due"), 0, "{}", server.output());
}
