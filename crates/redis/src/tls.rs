//! TLS: certificates are always checked, against the system's authorities or those in the URL.

use crate::error::{Error, Kind};
use crate::url::TlsFiles;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// # Errors
/// [`Kind::Url`] with the file that cannot be used.
pub(crate) fn connector(files: &TlsFiles) -> Result<TlsConnector, Error> {
    let failed =
        |what: &str, error: &dyn std::fmt::Display| Error::new(Kind::Url, format!("{what}: {error}"));
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| failed("an authority in ca= cannot be used", &error))?;
            }
        }
        None => {
            // System certificates that do not parse are skipped, as other programs do.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(Error::new(Kind::Url, "no certificate authority to trust: give ca=/path/to/ca.pem"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed("TLS cannot be set up", &error))?
        .with_root_certificates(roots);
    let config = match (&files.certificate, &files.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| failed(&format!("the key {} cannot be read", key.display()), &error))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| failed("certificate= and key= do not fit", &error))?
        }
        _ => return Err(Error::new(Kind::Url, "certificate= and key= go together")),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| {
        Error::new(Kind::Url, format!("the certificates {} cannot be read: {error}", path.display()))
    })
}
