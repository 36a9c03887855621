//! Connections to upstreams, with TLS if their URL has the scheme https.
//!
//! Promises that an https upstream is the host in its URL: its certificate is signed by one of the [`Roots`]
//! and issued for that host, which is also sent as SNI. TCP and the handshake share one time-out. Leaves
//! pools and attempts to [`crate::proxy`].

use crate::limits::{KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, KEEPALIVE_TIME};
use crate::link::{Link, Socket};
use http::Uri;
use http::uri::{Authority, InvalidUri, Scheme};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service;

/// The address of an upstream, and its scheme.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// Whether the scheme is https.
    pub is_secure: bool,
    /// Host and port.
    pub authority: Authority,
}

impl Upstream {
    /// Whether both are one server, as far as their names tell: the names of the loopback interface are one.
    pub fn is_at(&self, other: &Upstream) -> bool {
        let place = |upstream: &Upstream| {
            let host = upstream.authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
            let is_loopback =
                host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
            let port = if upstream.is_secure { 443 } else { 80 };
            let host = if is_loopback { "localhost".to_owned() } else { host };
            (host, upstream.authority.port_u16().unwrap_or(port))
        };
        place(self) == place(other)
    }

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

    /// Parses `http://host:port` or `https://host:port`; the default scheme is http.
    fn from_str(text: &str) -> Result<Upstream, InvalidUri> {
        let (is_secure, authority) = match text.split_once("://") {
            Some((scheme, authority)) => (scheme == "https", authority),
            None => (false, text),
        };
        Ok(Upstream { is_secure, authority: authority.parse()? })
    }
}

/// The certificate authorities that are trusted for https upstreams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Roots {
    /// The system's authorities.
    System,
    /// The authorities in a PEM file.
    Pem {
        /// The name of the file in errors.
        name: String,
        /// The content of the file.
        pem: Vec<u8>,
    },
}

/// Why TLS to upstreams cannot be set up: a sentence.
#[derive(Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

/// The TLS settings for upstreams: versions 1.2 and 1.3, certificates checked. Without roots no certificate
/// is accepted.
pub(crate) fn client_config(roots: Option<&Roots>) -> Result<ClientConfig, TlsError> {
    let mut store = RootCertStore::empty();
    match roots {
        None => {}
        Some(Roots::System) => {
            // Unusable old authorities in the system's store are skipped.
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

/// Connects by http or https, with a timeout.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    timeout: Duration,
}

/// Why a connection could not be opened.
pub(crate) type ConnectError = Box<dyn std::error::Error + Send + Sync>;

impl Connector {
    pub(crate) fn new(tls: ClientConfig, timeout: Duration) -> Connector {
        let mut http = HttpConnector::new();
        // The addresses of one name share the timeout.
        http.set_connect_timeout(Some(timeout));
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEPALIVE_TIME));
        http.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        http.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        http.enforce_http(false);
        let inner = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Connector { inner, timeout }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, upstream: &Upstream) -> Result<Box<Link>, ConnectError> {
        let uri = Uri::builder().scheme(upstream.scheme()).authority(upstream.authority.clone());
        let uri = uri.path_and_query("/").build()?;
        let mut inner = self.inner.clone();
        let connecting = async {
            std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
            inner.call(uri).await
        };
        let connected = tokio::time::timeout(self.timeout, connecting).await;
        let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(Box::new(Link::new(match stream {
            MaybeHttpsStream::Http(io) => Socket::Plain(io.into_inner()),
            MaybeHttpsStream::Https(io) => Socket::Secure(Box::pin(io.into_inner())),
        })))
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
