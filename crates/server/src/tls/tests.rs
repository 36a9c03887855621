//! Unusable files, and certificates outside their validity period.

use super::*;
use forebay_config::model::{CertificateFiles, Tls};
use std::process::Command;
use std::time::Duration;

/// Runs openssl in a folder.
fn openssl(folder: &Path, script: &str) {
    let made = Command::new("sh").args(["-ec", script]).current_dir(folder).output().expect("sh can be run");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

const MAKE: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=a \
    -addext subjectAltName=DNS:a.example -keyout a.key -out a.crt
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=b -addext subjectAltName=DNS:*.b.example -keyout b.key -out b.crt
    : > empty.pem
    echo nonsense > nonsense.pem";

fn pair(folder: &Path, certificate: &str, key: &str) -> CertificateFiles {
    CertificateFiles { certificate: folder.join(certificate), key: folder.join(key) }
}

fn tls(certificates: Vec<CertificateFiles>) -> Tls {
    Tls { certificates, acme: None, client_ca: None, line: 7 }
}

/// The sentence of an error; empty without one.
fn sentence<T>(result: Result<T, StartError>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn files_that_cannot_be_used_are_named_with_their_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    openssl(at, MAKE);
    let check = |certificate: &str, key: &str, expected: &str| {
        let loaded = load(&tls(vec![pair(at, certificate, key)]), &Challenges::default());
        let error = sentence(loaded).replace(&format!("{}/", at.display()), "");
        assert!(error.starts_with(expected), "{certificate} {key}: {error}");
    };
    assert!(load(&tls(vec![pair(at, "a.crt", "a.key")]), &Challenges::default()).is_ok());
    check("none.crt", "a.key", "server.tls.certificate: none.crt cannot be read: ");
    check("a.crt", "none.key", "server.tls.key: none.key cannot be read: ");
    check("empty.pem", "a.key", "server.tls.certificate: empty.pem holds no certificate");
    check("nonsense.pem", "a.key", "server.tls.certificate: nonsense.pem holds no certificate");
    check("a.crt", "a.crt", "server.tls.key: a.crt cannot be read: ");
    check("a.crt", "b.key", "server.tls.key: b.key is not the key of a.crt");
    let client_ca = Some(at.join("empty.pem"));
    let error =
        sentence(load(&Tls { client_ca, ..tls(vec![pair(at, "a.crt", "a.key")]) }, &Challenges::default()));
    assert!(
        error.starts_with("server.tls.client_ca: ") && error.ends_with("holds no certificate"),
        "{error}"
    );
}

#[test]
fn a_certificate_that_is_not_valid_now_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    openssl(folder.path(), MAKE);
    let chain = read_certificates("certificate", &folder.path().join("a.crt")).expect("it can be read");
    let (now, days) = (SystemTime::now(), Duration::from_secs(3 * 86_400));
    check_time(&chain[0], now).expect("it is valid");
    let said = |at| sentence(check_time(&chain[0], at));
    assert!(said(now + days).starts_with("has expired on 20"), "{}", said(now + days));
    assert!(said(now - days).starts_with("is not valid before 20"), "{}", said(now - days));
}

#[test]
fn files_that_changed_before_they_were_watched_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    openssl(folder.path(), MAKE);
    let tls = tls(vec![pair(folder.path(), "a.crt", "a.key")]);
    let seen = look(&tls);
    // This may happen while the server waits for its database.
    openssl(folder.path(), "mv b.crt a.crt; mv b.key a.key");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (told, replaced) = std::sync::mpsc::channel();
    runtime.block_on(async {
        let watching = watch(tls, Challenges::default(), seen, |_| {
            let told = told.clone();
            async move { told.send(()).expect("the test waits") }
        });
        let read = async {
            while replaced.try_recv().is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = watching => unreachable!("it never ends"),
            () = read => {}
        }
    });
}
