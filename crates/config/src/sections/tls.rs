//! `[server.tls]`: with what HTTPS is spoken.

use crate::syntax::fields::{Cursor, Fields, name};
use crate::syntax::keys::{Section, keys};
use std::path::PathBuf;

pub(crate) const TLS: Section = Section {
    name: "[server.tls]",
    keys: keys! {
        "certificate" | "path" | "" |
            "a PEM file: the server's certificate, and behind it those that lead to its authority"
        "key" | "path" | "" | "a PEM file: the private key of `certificate`"
        "certificates" | "array of tables" | "" |
            "several instead, each `{ certificate = \"…\", key = \"…\" }`: a client gets the first that is for the \
             name that it asks for, else the first of all"
        "client_ca" | "path" | "(clients show none)" |
            "a PEM file of authorities: a client must show a certificate that one of them has signed"
    },
};

const PAIR: Section = Section {
    name: "certificates",
    keys: keys! {
        "certificate" | "path" | "" | "as in [server.tls]"
        "key" | "path" | "" | "as in [server.tls]"
    },
};

/// `[server.tls]`: with what HTTPS is spoken. The files are read at start, and again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificates with their keys; at least one.
    pub certificates: Vec<CertificateFiles>,
    /// Authorities of clients; `None`: clients show no certificate.
    pub client_ca: Option<PathBuf>,
    /// The line of its table.
    pub line: usize,
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then those that lead to its authority.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// `[server.tls]`
pub(crate) fn read(cursor: Cursor<'_>) -> Option<Tls> {
    let fields = cursor.section(&TLS);
    let has_pair = fields.has("certificate") || fields.has("key");
    let certificates = match (has_pair, fields.get("certificates")) {
        (true, None) => vec![read_pair(TLS.name, fields)?],
        (false, Some(several)) => {
            let items = several.items("certificates: must be an array of tables");
            let pairs: Vec<_> =
                items.into_iter().filter_map(|item| read_pair(PAIR.name, item.section(&PAIR))).collect();
            if pairs.is_empty() {
                several.wrong("certificates: must name at least one certificate and its key");
                return None;
            }
            pairs
        }
        (true, Some(several)) => {
            several.wrong("[server.tls]: `certificate` and `key`, or `certificates`, not both");
            return None;
        }
        (false, None) => {
            cursor.wrong("[server.tls] needs `certificate` and `key`");
            return None;
        }
    };
    Some(Tls { certificates, client_ca: fields.read("client_ca", path), line: cursor.line() })
}

fn read_pair(owner: &str, fields: Fields<'_>) -> Option<CertificateFiles> {
    let (certificate, key) = (fields.required(owner, "certificate"), fields.required(owner, "key"));
    Some(CertificateFiles {
        certificate: certificate?.read("certificate", path)?,
        key: key?.read("key", path)?,
    })
}

fn path(node: &crate::syntax::tree::Node) -> Result<PathBuf, String> {
    name(node).map(PathBuf::from)
}
