//! TLS of attackers: the first message of a handshake, and whole handshakes.

use crate::crowd::{Hold, dial};
use forebay_tests::PATIENCE;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// An attacker does not care who the server is.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn config() -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    Arc::new(config)
}

fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config.clone(), "localhost".try_into().expect("a name")).expect("a configuration")
}

/// The first message of a client.
pub fn client_hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    client(&config()).write_tls(&mut bytes).expect("a buffer takes it");
    bytes
}

/// Connections after their handshakes.
pub struct Secure(Vec<(TcpStream, ClientConnection)>);

impl Secure {
    #[track_caller]
    pub fn open(address: SocketAddr, count: usize) -> Secure {
        let config = config();
        let open = |number: usize| {
            let (mut stream, mut tls) = (dial(address, number, true).expect("it listens"), client(&config));
            stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
                .expect("set");
            while tls.is_handshaking() {
                tls.complete_io(&mut stream).expect("a handshake");
            }
            (stream, tls)
        };
        Secure((0..count).map(open).collect())
    }
}

impl Hold for Secure {
    fn count(&self) -> usize {
        self.0.len()
    }
}
