//! `[server.tls]`: certificates for HTTPS.

use crate::syntax::fields::{Cursor, Fields, base_url, name, texts};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::Node;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub(crate) const TLS: Section = Section {
    name: "[server.tls]",
    keys: keys! {
        "certificate" | "path" | "" |
            "a PEM file: the server's certificate, followed by the chain to its authority"
        "key" | "path" | "" | "a PEM file: the private key of `certificate`"
        "certificates" | "array of tables" | "" |
            "instead, several, each `{ certificate = \"…\", key = \"…\" }`: a client gets the first one for \
            the host name that it requests, else the first of the array"
        "acme" | "URL" | "" |
            "instead, the directory of an ACME authority, such as \
            `https://acme-v02.api.letsencrypt.org/directory`: it issues a certificate for `names`, and the \
            server agrees to its terms"
        "names" | "array of host names" | "" |
            "with `acme`: the host names of the certificate; port 443 of each must lead to the listener"
        "client_ca" | "path" | "(clients show none)" |
            "a PEM file of authorities: a client must send a certificate that one of them has signed"
    },
};

const PAIR: Section = Section {
    name: "certificates",
    keys: keys! {
        "certificate" | "path" | "" | "as in [server.tls]"
        "key" | "path" | "" | "as in [server.tls]"
    },
};

/// `[server.tls]`: certificates for HTTPS. The files are read at start, and again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificates with their keys; at least one.
    pub certificates: Vec<CertificateFiles>,
    /// The certificate authority that issues the certificate (ACME); `None`: the operator provides the
    /// files.
    pub acme: Option<Acme>,
    /// Certificate authorities of clients; `None`: clients send no certificate.
    pub client_ca: Option<PathBuf>,
    /// The line of its table.
    pub line: usize,
}

/// A certificate that an authority issues on request (ACME, RFC 8555).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acme {
    /// The URL of the authority's directory.
    pub directory: String,
    /// The names of the certificate, in lower case; at least one.
    pub names: Vec<String>,
    /// The PEM file with the key and the certificate.
    pub file: PathBuf,
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by the chain to its authority.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// `[server.tls]`. Issued certificates are stored below `data_dir`.
pub(crate) fn read(cursor: Cursor<'_>, data_dir: &Path) -> Option<Tls> {
    let fields = cursor.section(&TLS);
    let acme = read_acme(fields, data_dir);
    let certificates = match &acme {
        Some(acme) => vec![CertificateFiles { certificate: acme.file.clone(), key: acme.file.clone() }],
        // The mistake has already been recorded.
        None if fields.has("acme") => return None,
        None => read_certificates(cursor, fields)?,
    };
    Some(Tls { certificates, acme, client_ca: fields.read("client_ca", path), line: cursor.line() })
}

fn read_acme(fields: Fields<'_>, data_dir: &Path) -> Option<Acme> {
    let Some(directory) = fields.get("acme") else {
        if fields.has("names") {
            fields.wrong_at("names", "names: goes with `acme`");
        }
        return None;
    };
    for other in ["certificate", "key", "certificates"] {
        if fields.has(other) {
            fields.wrong_at(other, format!("[server.tls]: `acme` or `{other}`, not both"));
        }
    }
    let names = fields.required(TLS.name, "names").and_then(|names| names.read("names", host_names));
    let directory = directory.read("acme", base_url)?;
    Some(Acme { directory, names: names?, file: data_dir.join("acme").join("certificate.pem") })
}

fn read_certificates(cursor: Cursor<'_>, fields: Fields<'_>) -> Option<Vec<CertificateFiles>> {
    let has_pair = fields.has("certificate") || fields.has("key");
    match (has_pair, fields.get("certificates")) {
        (true, None) => Some(vec![read_pair(TLS.name, fields)?]),
        (false, Some(several)) => {
            let items = several.items("certificates: must be an array of tables");
            let pairs: Vec<_> =
                items.into_iter().filter_map(|item| read_pair(PAIR.name, item.section(&PAIR))).collect();
            if pairs.is_empty() {
                several.wrong("certificates: must name at least one certificate and its key");
                return None;
            }
            Some(pairs)
        }
        (true, Some(several)) => {
            several.wrong("[server.tls]: `certificate` and `key`, or `certificates`, not both");
            None
        }
        (false, None) => {
            cursor.wrong("[server.tls] needs `certificate` and `key`, or `acme` and `names`");
            None
        }
    }
}

/// Names that an authority can validate by connecting to a host: no wildcard, no address.
fn host_names(node: &Node) -> Result<Vec<String>, Mistake> {
    let names = texts(node, "a name or an array of names")?;
    let names: Vec<_> = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
    let is_label = |label: &str| {
        let is_plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && is_plain && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_name = |name: &String| name.split('.').all(is_label) && name.parse::<IpAddr>().is_err();
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!("`{name}` must be the name of a host, such as shop.example").into()),
        None if names.is_empty() => Err("must have at least one name".into()),
        None => Ok(names),
    }
}

fn read_pair(owner: &str, fields: Fields<'_>) -> Option<CertificateFiles> {
    let (certificate, key) = (fields.required(owner, "certificate"), fields.required(owner, "key"));
    Some(CertificateFiles {
        certificate: certificate?.read("certificate", path)?,
        key: key?.read("key", path)?,
    })
}

fn path(node: &Node) -> Result<PathBuf, Mistake> {
    name(node).map(PathBuf::from)
}
