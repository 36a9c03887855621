//! TLS to the server: the trusted certificates, and what is verified.

use super::url::{Settings, Tls};
use crate::{Error, Kind};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The TLS connector of connections. With `sslmode=disable` it is never used.
pub(super) fn connector(settings: &Settings) -> Result<MakeRustlsConnect, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|source| Error::new(Kind::Url, "TLS cannot be set up").with_source(source))?;
    let config = match settings.tls {
        Tls::Verify => builder.with_root_certificates(roots(settings)?).with_no_client_auth(),
        Tls::Disable | Tls::Prefer | Tls::Insecure => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(settings: &Settings) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let (from, certificates) = match &settings.root_certificates {
        Some(path) => {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let certificates = read.map_err(|source| {
                Error::new(Kind::Url, format!("sslrootcert: {path} cannot be read: {source}"))
                    .with_source(source)
            })?;
            (path.as_str(), certificates)
        }
        None => ("the system's certificate store", rustls_native_certs::load_native_certs().certs),
    };
    // Unusable old certificates in the system's store must not prevent the start.
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        let message = format!("{from} holds no certificate to trust; name a file with sslrootcert=FILE");
        return Err(Error::new(Kind::Url, message));
    }
    Ok(roots)
}

/// Accepts any certificate: the connection is encrypted, but the server's identity is not verified. Only for
/// URLs that request it.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
