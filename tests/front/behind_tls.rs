//! Upstreams with https: which certificates are trusted, which name is sent, and what the client and the
//! terminal show when that fails.

use super::Front;
use super::tls::self_signed;
use forebay_tests::{Certificates, Folder, Start, binary};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// An upstream with two certificates; it serves the one for localhost only to clients that send that name.
fn behind(folder: &Folder, certificates: &Certificates) -> Front {
    let (certificate, key) = (certificates.certificate.display(), certificates.key.display());
    let other = self_signed(folder.path(), "x", "DNS:x.example");
    let tls = format!("certificates = [{other}, {{ certificate = '{certificate}', key = '{key}' }}]");
    let app = "[[endpoint]]\nroute = 'GET /a'\nconstant = { text = 'a' }\n\
         [[endpoint]]\nroute = 'PUT /b'\nconstant = { text = 'b' }\n";
    Front::start_with(&format!("[server.tls]\n{tls}\n{app}"), |start| start.listen("https://127.0.0.1:0"))
}

fn port(front: &Front) -> u16 {
    front.server.address_behind("listening on https://").expect("it says so").port()
}

/// A server that proxies to that URL.
fn before(url: &str, more: &str) -> Front {
    Front::start(&format!("[[endpoint]]\nroute = '* /{{path...}}'\nproxy = '{url}'\n{more}"))
}

fn ca(path: &Path) -> String {
    format!("ca = '{}'", path.display())
}

#[test]
fn a_server_behind_https_is_asked_by_its_name() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let behind = behind(&folder, &certificates);
    let url = format!("https://localhost:{}", port(&behind));
    let front = before(&url, &format!("{}\nhealth = '/a'", ca(&certificates.ca)));
    for _ in 0..3 {
        front.server.client().get("/a").expect(200);
        front.server.client().ask("PUT", "/b", Some("x")).expect(200);
    }
    front.server.client().get("/none").expect_problem(404, "nothing here");
    assert!(!front.server.output().contains("proxy:"), "{}", front.server.output());
}

#[test]
fn the_authorities_of_the_system_count_where_no_others_are_named() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let behind = behind(&folder, &certificates);
    let url = format!("https://localhost:{}", port(&behind));
    let config = format!("[[endpoint]]\nroute = '* /{{path...}}'\nproxy = '{url}'");
    for (authorities, is_known) in [(&certificates.ca, true), (&certificates.other_ca, false)] {
        let authorities = authorities.display().to_string();
        let front = Front::start_with(&config, |start| start.environment("SSL_CERT_FILE", &authorities));
        let answer = front.server.client().get("/a");
        match is_known {
            true => assert_eq!(answer.expect(200)["text"], "a"),
            false => answer.expect_problem(502, "cannot be reached"),
        }
    }
}

#[test]
fn a_handshake_that_fails_is_502_and_says_why() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let behind = behind(&folder, &certificates);
    let port = port(&behind);
    let (certificate, key) = (certificates.certificate.display(), certificates.key.display());
    let config = format!(
        "[server.tls]\ncertificate = '{certificate}'\nkey = '{key}'\n[[endpoint]]\nroute = 'GET /a'\nconstant = {{}}"
    );
    let elsewhere_front = Front::start_with(&config, |start| start.listen("https://127.0.0.2:0"));
    let elsewhere = elsewhere_front.server.address_behind("listening on https://").expect("it says so");
    let plain = Front::start("[[endpoint]]\nroute = 'GET /a'\nconstant = { text = 'a' }");
    for (url, authority, why) in [
        (format!("https://localhost:{port}"), &certificates.other_ca, "UnknownIssuer"),
        (format!("https://{elsewhere}"), &certificates.ca, "not valid for name"),
        (format!("https://{}", plain.server.address), &certificates.ca, "InvalidContentType"),
    ] {
        let front = before(&url, &ca(authority));
        front.server.client().get("/a").expect_problem(502, "cannot be reached");
        front.server.wait_for_output(&format!("proxy: {url} cannot be reached: "));
        front.server.wait_for_output(why);
    }
}

#[test]
fn a_handshake_that_does_not_end_is_504() {
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    // The kernel accepts connections; no process answers them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address: SocketAddr = silent.local_addr().expect("bound");
    let more = format!("{}\nconnect_timeout = '300ms'\nretries = 0", ca(&certificates.ca));
    let front = before(&format!("https://{address}"), &more);
    front.server.client().get("/a").expect_problem(504, "did not answer in time");
    front.server.wait_for_output("did not take the connection in time");
}

#[test]
fn authorities_that_cannot_be_used_prevent_a_start() {
    let folder = Folder::new();
    folder.write("empty.pem", "");
    for (file, why) in
        [("none.pem", "none.pem cannot be read: "), ("empty.pem", "empty.pem holds no certificate")]
    {
        let path = folder.path().join(file);
        let config = format!("[[endpoint]]\nroute = 'GET /a'\nproxy = 'https://localhost:1'\n{}", ca(&path));
        let file = folder.write("front.toml", &config);
        let ended = Start::new(binary(), &folder, &file).try_start().err().expect("it does not start");
        assert!(ended.output.contains("ca: ") && ended.output.contains(why), "{ended:?}");
    }
}
