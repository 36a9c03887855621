//! HTTPS as a client sees it: curl and openssl against the server, certificates by name, authorities of
//! clients, and files that change while it runs.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Certificates, Folder, wait_for};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

const ENDPOINTS: &str = "[[endpoint]]\nroute = 'GET /a'\nconstant = { text = 'a' }\n";

/// A server with HTTPS and the given `tls` section.
fn front(tls: &str) -> Front {
    Front::start_with(&format!("[server.tls]\n{tls}\n{ENDPOINTS}"), |start| {
        start.listen("https://127.0.0.1:0,127.0.0.1:0")
    })
}

pub(super) fn pair(certificates: &Certificates) -> String {
    let (certificate, key) = (certificates.certificate.display(), certificates.key.display());
    format!("certificate = '{certificate}'\nkey = '{key}'")
}

/// The address of HTTPS.
pub(super) fn https(front: &Front) -> SocketAddr {
    front.server.address_behind("listening on https://").expect("it says so")
}

fn curl(arguments: &[&str]) -> Output {
    Command::new("curl")
        .args(["-sS", "--max-time", "60"])
        .args(arguments)
        .output()
        .expect("curl is installed")
}

fn url(front: &Front, path: &str) -> String {
    format!("https://localhost:{}{path}", https(front).port())
}

#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn curl_is_served_with_both_versions_and_http_beside_it() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let (front, ca) = (front(&pair(&certificates)), text(&certificates.ca));
    let (a, other_ca) = (url(&front, "/a"), text(&certificates.other_ca));
    for version in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let arguments = [version, &["--cacert", &ca, &a, &a]].concat();
        assert_eq!(good(&curl(&arguments)), "{\"text\":\"a\"}{\"text\":\"a\"}");
    }
    for refused in [&["--cacert", &other_ca][..], &["--cacert", &ca, "--tls-max", "1.1"]] {
        let output = curl(&[refused, &[&a]].concat());
        assert!(!output.status.success(), "{refused:?}");
    }
    front.server.client().get("/a").expect(200);
    let plain = curl(&["-o", "/dev/null", "-w", "%{http_code}", &a.replace("https", "http")]);
    assert_eq!(good(&plain), "400");
}

#[test]
fn http_2_is_served_with_tls_and_without() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let upstream =
        Scripted::saying("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok");
    let app =
        format!("[[endpoint]]\nroute = 'POST /app/{{path...}}'\nproxy = 'http://{}'\n", upstream.address);
    let front = front(&format!("{}\n{app}", pair(&certificates)));
    let ca = text(&certificates.ca);
    let plain = |path: &str| format!("http://{}{path}", front.server.address);
    for (how, at) in [
        (&["--http2", "--cacert", &ca][..], &url as &dyn Fn(&Front, &str) -> String),
        (&["--http2-prior-knowledge"], &|_, path| plain(path)),
    ] {
        let ask = |more: &[&str], path: &str| {
            let shown = ["-w", "|%{http_version} %{http_code}", &at(&front, path)];
            good(&curl(&[how, more, &shown].concat()))
        };
        assert_eq!(ask(&[], "/a"), "{\"text\":\"a\"}|2 200");
        assert!(ask(&[], "/none").ends_with("|2 404"));
        let posted = ask(&["-d", "name=x", "-H", "Cookie: a=b", "-H", "TE: trailers"], "/app/b?c=d");
        assert_eq!(posted, "ok|2 200");
    }
    for seen in upstream.seen() {
        assert_eq!((seen.header("cookie"), seen.header("te")), (Some("a=b"), None));
        assert!(seen.header("host").is_some());
        assert_eq!(seen.body, b"name=x");
    }
}

#[test]
fn the_server_behind_is_told_of_https() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let upstream = Scripted::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let config = format!(
        "[server.tls]\n{}\n[[endpoint]]\nroute = 'GET /{{path...}}'\nproxy = 'http://{}'",
        pair(&certificates),
        upstream.address
    );
    let front = Front::start_with(&config, |start| start.listen("https://127.0.0.1:0"));
    assert_eq!(good(&curl(&["--cacert", &text(&certificates.ca), &url(&front, "/a")])), "ok");
    assert_eq!(upstream.seen()[0].header("x-forwarded-proto"), Some("https"));
}

/// The output of `openssl s_client` with empty input.
fn s_client(front: &Front, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &https(front).to_string()]).args(arguments);
    let output = command.stdin(std::process::Stdio::null()).output().expect("openssl is installed");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn protocols_are_settled_and_what_is_not_offered_is_refused() {
    let folder = Folder::new();
    let front = front(&pair(&Certificates::new(folder.path())));
    assert!(s_client(&front, &["-alpn", "http/1.1"]).contains("ALPN protocol: http/1.1"));
    assert!(s_client(&front, &["-alpn", "http/1.1,h2"]).contains("ALPN protocol: h2"));
    assert!(s_client(&front, &[]).contains("No ALPN negotiated"));
    let other = s_client(&front, &["-alpn", "imap"]);
    assert!(other.contains("no application protocol"), "{other}");
    let weak = s_client(&front, &["-tls1_2", "-cipher", "AES128-SHA"]);
    assert!(weak.contains("handshake failure"), "{weak}");
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(
            s_client(&front, &[version]).contains("Verification error"),
            "an authority of its own: {version}"
        );
    }
}

/// Creates a self-signed certificate for these names.
pub(super) fn self_signed(folder: &Path, file: &str, names: &str) -> String {
    let script = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={file} \
         -addext subjectAltName={names} -keyout {file}.key -out {file}.crt"
    );
    let made = Command::new("sh").args(["-ec", &script]).current_dir(folder).output().expect("sh can be run");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let at = |end: &str| text(&folder.join(format!("{file}.{end}")));
    format!("{{ certificate = '{}', key = '{}' }}", at("crt"), at("key"))
}

/// The subject of the certificate that a client with this server name gets.
pub(super) fn subject(front: &Front, name: &str) -> String {
    let arguments: &[&str] = if name.is_empty() { &["-noservername"] } else { &["-servername", name] };
    let said = s_client(front, arguments);
    let subject = said.lines().find_map(|line| line.strip_prefix("subject="));
    subject.unwrap_or_else(|| panic!("no certificate for {name:?}: {said}")).replace(' ', "")
}

#[test]
fn the_certificate_is_that_of_the_name_asked_for() {
    let folder = Folder::new();
    let pairs = [("a", "DNS:a.example"), ("b", "DNS:*.b.example"), ("c", "DNS:c.example,DNS:a.example")];
    let pairs = pairs.map(|(file, names)| self_signed(folder.path(), file, names));
    let front = front(&format!("certificates = [{}]", pairs.join(", ")));
    for (name, expected) in [
        ("a.example", "CN=a"),
        ("A.Example", "CN=a"),
        ("x.b.example", "CN=b"),
        ("x.x.b.example", "CN=a"),
        ("c.example", "CN=c"),
        ("other.example", "CN=a"),
        ("", "CN=a"),
    ] {
        assert_eq!(subject(&front, name), expected, "{name}");
    }
}

#[test]
fn clients_show_a_certificate_of_their_authority() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let ca = text(&certificates.ca);
    let front = front(&format!("{}\nclient_ca = '{ca}'", pair(&certificates)));
    let (certificate, key) = (text(&certificates.certificate), text(&certificates.key));
    let with = ["--cacert", &ca, "--cert", &certificate, "--key", &key, &url(&front, "/a")];
    assert_eq!(good(&curl(&with)), "{\"text\":\"a\"}");
    assert!(!curl(&["--cacert", &ca, &url(&front, "/a")]).status.success(), "none is shown");
    self_signed(folder.path(), "own", "DNS:own.example");
    let (certificate, key) = (text(&folder.path().join("own.crt")), text(&folder.path().join("own.key")));
    let with = ["--cacert", &ca, "--cert", &certificate, "--key", &key, &url(&front, "/a")];
    assert!(!curl(&with).status.success(), "another authority's");
}

#[test]
fn certificates_that_change_are_in_use_and_bad_ones_are_not() {
    let folder = Folder::new();
    self_signed(folder.path(), "used", "DNS:used.example");
    let at = |name: &str| folder.path().join(name);
    let tls = format!("certificate = '{}'\nkey = '{}'", text(&at("used.crt")), text(&at("used.key")));
    let front = front(&tls);
    assert_eq!(subject(&front, ""), "CN=used");
    let put = |from: &str| {
        self_signed(folder.path(), from, "DNS:next.example");
        for end in ["key", "crt"] {
            std::fs::rename(at(&format!("{from}.{end}")), at(&format!("used.{end}"))).expect("a file");
        }
    };
    put("next");
    wait_for("the new one is in use", || (subject(&front, "") == "CN=next").then_some(()));
    std::fs::write(at("used.crt"), "nonsense").expect("a file");
    front.server.wait_for_output("cannot be used: server.tls.certificate: ");
    assert_eq!(subject(&front, ""), "CN=next");
    std::fs::remove_file(at("used.key")).expect("a file");
    put("last");
    wait_for("the last one is in use", || (subject(&front, "") == "CN=last").then_some(()));
}

#[test]
fn a_reload_takes_other_files_and_refuses_bad_ones() {
    let folder = Folder::new();
    let at = |name: &str| text(&folder.path().join(name));
    let tls = |name: &str| {
        let (certificate, key) = (at(&format!("{name}.crt")), at(&format!("{name}.key")));
        format!("[server.tls]\ncertificate = '{certificate}'\nkey = '{key}'\n{ENDPOINTS}")
    };
    self_signed(folder.path(), "a", "DNS:a.example");
    self_signed(folder.path(), "b", "DNS:b.example");
    let front = Front::start_with(&tls("a"), |start| start.listen("https://127.0.0.1:0"));
    assert_eq!(subject(&front, ""), "CN=a");
    front.folder.write("front.toml", &tls("none"));
    front.server.admin("POST", "/reload").expect_problem(422, "none.crt cannot be read");
    assert_eq!(subject(&front, ""), "CN=a");
    front.folder.write("front.toml", &tls("b"));
    front.server.admin("POST", "/reload").expect(200);
    assert_eq!(subject(&front, ""), "CN=b");
    // The files of the new config are now watched.
    std::fs::rename(at("a.key"), at("b.key")).expect("a file");
    std::fs::rename(at("a.crt"), at("b.crt")).expect("a file");
    wait_for("the changed one is in use", || (subject(&front, "") == "CN=a").then_some(()));
}

#[test]
fn a_start_without_its_certificate_says_why() {
    let folder = Folder::new();
    let file = folder.write(
        "front.toml",
        &format!("[server.tls]\ncertificate = 'none.crt'\nkey = 'none.key'\n{ENDPOINTS}"),
    );
    let start =
        forebay_tests::Start::new(forebay_tests::binary(), &folder, &file).listen("https://127.0.0.1:0");
    let ended = start.try_start().err().expect("it does not start");
    let expected = format!("{}:1: server.tls.certificate: none.crt cannot be read: ", file.display());
    assert!(ended.output.contains(&expected), "{ended:?}");
}
