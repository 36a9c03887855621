//! Certificates and keys: loaded from PEM files for the HTTP engine, and again when the files change.
//!
//! Promises: certificates in use are replaced as a whole, and only by files that fit together and whose
//! certificates are valid now; an error of other files is reported once. TLS 1.2 and 1.3 with ring, session
//! tickets whose keys are replaced together with the certificates, no early data.

mod acme;
mod watch;

pub use acme::{Challenges, keep, prepare};
pub use watch::{FileStates, look, watch};

use crate::start_error::StartError;
use forebay_config::model;
use forebay_http::ACME_PROTOCOL;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use x509_cert::der::Decode;
use x509_cert::time::Time;

/// The protocols that are offered, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The TLS config, and a sentence for each certificate that is not valid now.
pub struct Loaded {
    /// The config for the HTTP engine.
    pub config: Arc<ServerConfig>,
    /// Certificates that are not valid now.
    pub warnings: Vec<String>,
}

/// Reads the files. `challenges`: the certificates for an ACME directory that validates a name.
///
/// # Errors
/// A sentence that names the key and the file.
pub fn load(tls: &model::Tls, challenges: &Challenges) -> Result<Loaded, StartError> {
    let provider = Arc::new(ring::default_provider());
    let (mut certificates, mut warnings) = (Vec::new(), Vec::new());
    for files in &tls.certificates {
        let certified = certified_key(files, &provider)?;
        let checked = check_time(&certified.cert[0], SystemTime::now());
        warnings
            .extend(checked.err().map(|what| format!("server.tls: {} {what}", files.certificate.display())));
        certificates.push(Arc::new(certified));
    }
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("server.tls: TLS cannot be set up: {error}"))?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let unusable = |error: &dyn std::fmt::Display| {
                format!("server.tls.client_ca: {} cannot be used: {error}", path.display())
            };
            let mut roots = RootCertStore::empty();
            for authority in read_certificates("client_ca", path)? {
                roots.add(authority).map_err(|error| unusable(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(&error))?)
        }
    };
    let challenges = tls.acme.is_some().then(|| challenges.clone());
    let acme_protocol = challenges.as_ref().map(|_| ACME_PROTOCOL);
    let protocols = PROTOCOLS.into_iter().chain(acme_protocol).map(<[u8]>::to_vec).collect();
    let mut config = builder.with_cert_resolver(Arc::new(Resolver { certificates, challenges }));
    config.alpn_protocols = protocols;
    // New keys each time: a client admitted under a removed authority must present its certificate again.
    config.ticketer =
        ring::Ticketer::new().map_err(|error| format!("server.tls: no keys for session tickets: {error}"))?;
    Ok(Loaded { config: Arc::new(config), warnings })
}

/// [`load`] for a start, which continues with an expired certificate, because otherwise the server could not
/// be reached at all.
///
/// # Errors
/// The sentence, with its place.
pub fn load_at_start(
    source: &str,
    tls: &model::Tls,
    challenges: &Challenges,
) -> Result<Arc<ServerConfig>, StartError> {
    let loaded = load(tls, challenges).map_err(|what| format!("{source}:{}: {what}", tls.line))?;
    for warning in &loaded.warnings {
        forebay_terminal::warn!("warning: {warning}");
    }
    Ok(loaded.config)
}

fn certified_key(
    files: &model::CertificateFiles,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, StartError> {
    let chain = read_certificates("certificate", &files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("server.tls.key: {} cannot be read: {error}", files.key.display()))?;
    let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "server.tls.key: {} is not the key of {}",
            files.key.display(),
            files.certificate.display()
        ),
        error => format!("server.tls: {} cannot be used: {error}", files.certificate.display()),
    });
    Ok(certified?)
}

fn read_certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => {
            Err(format!("server.tls.{key}: {} holds no certificate", path.display()).into())
        }
        Ok(chain) => Ok(chain),
        Err(error) => Err(format!("server.tls.{key}: {} cannot be read: {error}", path.display()).into()),
    }
}

/// The period in which a certificate is valid, and whether it is self-signed.
struct Validity {
    from: Time,
    until: Time,
    is_self_signed: bool,
}

fn validity_of(certificate: &CertificateDer<'_>) -> Result<Validity, StartError> {
    let parsed =
        x509_cert::Certificate::from_der(certificate).map_err(|error| format!("is malformed: {error}"))?;
    let signed = parsed.tbs_certificate;
    Ok(Validity {
        from: signed.validity.not_before,
        until: signed.validity.not_after,
        is_self_signed: signed.issuer == signed.subject,
    })
}

/// Whether a certificate is valid now; the error says what is wrong with its period.
fn check_time(certificate: &CertificateDer<'_>, now: SystemTime) -> Result<(), StartError> {
    let validity = validity_of(certificate)?;
    if now > validity.until.to_system_time() {
        return Err(format!("has expired on {}", validity.until).into());
    }
    if now < validity.from.to_system_time() {
        return Err(format!("is not valid before {}", validity.from).into());
    }
    Ok(())
}

/// Selects the certificate for the name that a client requests, else the first; for an ACME directory that
/// validates a name, only the certificate of its challenge.
#[derive(Debug)]
struct Resolver {
    certificates: Vec<Arc<CertifiedKey>>,
    challenges: Option<Challenges>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let Some(challenges) = &self.challenges
            && hello.alpn().is_some_and(|mut protocols| protocols.any(|name| name == ACME_PROTOCOL))
        {
            return challenges.of(hello.server_name()?);
        }
        let is_for = |name: &ServerName<'_>, certified: &CertifiedKey| {
            let parsed = certified.end_entity_cert().and_then(ParsedCertificate::try_from);
            parsed.is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
        };
        let named = hello.server_name().filter(|_| self.certificates.len() > 1).and_then(|name| {
            let name = ServerName::try_from(name).ok()?;
            self.certificates.iter().find(|certified| is_for(&name, certified))
        });
        named.or(self.certificates.first()).cloned()
    }
}

#[cfg(test)]
mod tests;
