//! TLS to the server: rustls, with HTTP/1.1 by ALPN for HTTP servers, and the name by SNI.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt;
use std::io::{self, ErrorKind as Io};
use std::sync::Arc;

/// How every connection of a run does TLS.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

impl Tls {
    /// TLS to the server of that name, which is offered these ALPN protocols. Unless `insecure`,
    /// its certificate is checked against the roots of this machine (`SSL_CERT_FILE` names others);
    /// fails when there are none, or when the name is not a valid server name.
    pub fn new(host: &str, insecure: bool, protocols: &[&str]) -> io::Result<Tls> {
        let invalid = |why: String| io::Error::new(Io::InvalidInput, why);
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|why| invalid(format!("{host}: {why}")))?;
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> =
            if insecure { Arc::new(Anyone(provider.clone())) } else { checked(&provider)? };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| invalid(why.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Tls { config: Arc::new(config), name })
    }

    /// Makes a full handshake for every connection, whatever tickets the server sends.
    pub fn without_resumption(mut self) -> Tls {
        Arc::make_mut(&mut self.config).resumption = Resumption::disabled();
        self
    }

    pub(crate) fn begin(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(|why| io::Error::new(Io::InvalidData, why))
    }
}

fn checked(provider: &Arc<CryptoProvider>) -> io::Result<Arc<dyn ServerCertVerifier>> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let none = "no root certificates on this machine to check the server's against: install ca-certificates, or use -k";
    Ok(verifier.map_err(|_| io::Error::new(Io::NotFound, none))?)
}

/// Takes every certificate (`-k`), but the handshake's signatures are checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
