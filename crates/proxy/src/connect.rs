//! Connections to upstreams, with TLS where their URL says https.
//!
//! Promises that an upstream behind https is the one that its URL names: its certificate is from one of the
//! [`Roots`] and for that host, which is also what it is asked for (SNI). TCP and the handshake together have
//! one time-out. Leaves pools and attempts to [`crate::proxy`].

use http::Uri;
use http::uri::{Authority, InvalidUri, Scheme};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tower_service::Service;

/// A server behind, and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// Whether it is asked by https.
    pub is_secure: bool,
    /// Host and port.
    pub authority: Authority,
}

impl Upstream {
    pub(crate) fn scheme(&self) -> Scheme {
        if self.is_secure { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority)
    }
}

impl FromStr for Upstream {
    type Err = InvalidUri;

    /// `http://host:port` or `https://host:port`; without a scheme it is http.
    fn from_str(text: &str) -> Result<Upstream, InvalidUri> {
        let (is_secure, authority) = match text.split_once("://") {
            Some((scheme, authority)) => (scheme == "https", authority),
            None => (false, text),
        };
        Ok(Upstream { is_secure, authority: authority.parse()? })
    }
}

/// Who vouches for upstreams behind https.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Roots {
    /// The authorities of the system.
    System,
    /// Those of a PEM file.
    Pem {
        /// What errors call it.
        name: String,
        /// What it holds.
        pem: Vec<u8>,
    },
}

/// Why there can be no TLS to upstreams: a sentence.
#[derive(Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

/// How TLS is spoken to upstreams: versions 1.2 and 1.3, certificates checked. Without roots no certificate
/// is accepted.
pub(crate) fn client_config(roots: Option<&Roots>) -> Result<ClientConfig, TlsError> {
    let mut store = RootCertStore::empty();
    match roots {
        None => {}
        Some(Roots::System) => {
            // Old authorities in the system's store that cannot be used are no reason to stop.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(TlsError("the system has no authorities for https; name a file by `ca`".into()));
            }
        }
        Some(Roots::Pem { name, pem }) => {
            let unusable = |error: &dyn fmt::Display| TlsError(format!("ca: {name} cannot be used: {error}"));
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| unusable(&error))?;
                store.add(certificate).map_err(|error| unusable(&error))?;
            }
            if store.is_empty() {
                return Err(TlsError(format!("ca: {name} holds no certificate")));
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(format!("TLS cannot be set up: {error}")))?;
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}

/// Connects by http or https, within a time.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    timeout: Duration,
}

impl Connector {
    pub(crate) fn new(tls: ClientConfig, timeout: Duration) -> Connector {
        let mut http = HttpConnector::new();
        // Several addresses of a name share it.
        http.set_connect_timeout(Some(timeout));
        http.set_nodelay(true);
        http.enforce_http(false);
        let inner = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Connector { inner, timeout }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, timeout) = (self.inner.call(uri), self.timeout);
        Box::pin(async move {
            match tokio::time::timeout(timeout, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_have_a_scheme() {
        for (text, expected) in [
            ("http://a:1", "http://a:1"),
            ("https://a", "https://a"),
            ("https://[::1]:2", "https://[::1]:2"),
            ("127.0.0.1:3", "http://127.0.0.1:3"),
        ] {
            assert_eq!(text.parse::<Upstream>().expect(text).to_string(), expected);
        }
        assert!("https://a b".parse::<Upstream>().is_err());
    }

    #[test]
    fn authorities_that_cannot_be_used_are_told() {
        let told = |pem: &str| {
            let roots = Roots::Pem { name: "ca.pem".into(), pem: pem.into() };
            client_config(Some(&roots)).expect_err("refused").to_string()
        };
        assert_eq!(told("nothing"), "ca: ca.pem holds no certificate");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(told(broken).starts_with("ca: ca.pem cannot be used: "), "{}", told(broken));
    }
}
