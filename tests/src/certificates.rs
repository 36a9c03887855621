//! Certificates for one test, made by `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate for 127.0.0.1 and localhost from an authority, and another authority that has signed
/// nothing.
pub struct Certificates {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// The private key as PEM, without a password.
    pub key: PathBuf,
    /// The authority that signed it.
    pub ca: PathBuf,
    /// The authority that has signed nothing.
    pub other_ca: PathBuf,
}

const SCRIPT: &str = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt && \
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout other.key -out other.crt && \
    openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr && \
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names && \
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt";

impl Certificates {
    /// Creates the certificates in a folder.
    #[track_caller]
    pub fn new(folder: &Path) -> Certificates {
        let made =
            Command::new("sh").args(["-c", SCRIPT]).current_dir(folder).output().expect("sh can be run");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let at = |name: &str| folder.join(name);
        Certificates {
            certificate: at("server.crt"),
            key: at("server.key"),
            ca: at("ca.crt"),
            other_ca: at("other.crt"),
        }
    }
}
