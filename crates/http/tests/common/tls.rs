//! TLS for tests: the configurations of both ends, and a bridge that carries plain bytes to a server with
//! TLS.

use futures_util::future::{Either, select};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

/// A server for `localhost` and 127.0.0.1, with session tickets.
pub fn server() -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(include_bytes!("certificate.pem"));
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("key.pem")).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.collect::<Result<_, _>>().expect("a certificate"), key)
        .expect("they fit");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new().expect("random bytes");
    Arc::new(config)
}

/// A client that trusts that server's certificate authority.
pub fn client(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(include_bytes!("authority.pem")).expect("a certificate");
    roots.add(authority).expect("an authority");
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Accepts connections without TLS and passes each on over its own TLS connection. The end of either side's
/// bytes becomes the end of the other's, and a reset becomes a reset.
pub fn bridge(to: SocketAddr) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a live socket");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a live socket");
            let connector = TlsConnector::from(Arc::new(client(rustls::ALL_VERSIONS)));
            while let Ok((plain, _)) = listener.accept().await {
                tokio::spawn(pass(plain, to, connector.clone()));
            }
        });
    });
    address
}

async fn pass(mut plain: TcpStream, to: SocketAddr, connector: TlsConnector) {
    // A stopped server accepts no connection: the client sees its connection closed.
    let Ok(stream) = TcpStream::connect(to).await else { return };
    stream.set_nodelay(true).expect("a live socket");
    plain.set_nodelay(true).expect("a live socket");
    let name = "localhost".try_into().expect("a name");
    let Ok(secure) = connector.connect(name, stream).await else {
        // The client's bytes are read, so that it sees an end and not a reset.
        plain.shutdown().await.expect("a live socket");
        while plain.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
        return;
    };
    let (from_server, to_server) = tokio::io::split(secure);
    let (from_client, to_client) = plain.into_split();
    let there = tokio::spawn(copy(from_client, to_server));
    let back = Box::pin(copy(from_server, to_client));
    let (to_client, end) = match select(there, back).await {
        // The client was reset: the server's connection is closed without close_notify.
        Either::Left((Ok((.., End::Broken)) | Err(_), _)) => return,
        Either::Left((Ok((mut from_client, _, end)), back)) => {
            let (_, to_client, said) = back.await;
            if end == End::Refused {
                // The server takes no more bytes. The client's further bytes are read, so that its
                // connection is not reset before it has read the answer.
                while from_client.read(&mut [0; 16 * 1024]).await.is_ok_and(|count| count > 0) {}
            }
            (to_client, said)
        }
        // The server has ended its side, and may still read.
        Either::Right(((_, to_client, End::Said), there)) => {
            let _ended = there.await;
            (to_client, End::Said)
        }
        Either::Right(((_, to_client, end), there)) => {
            there.abort();
            (to_client, end)
        }
    };
    if end != End::Said {
        let reset = socket2::SockRef::from(to_client.as_ref()).set_linger(Some(Duration::ZERO));
        reset.expect("a live socket");
    }
    // Dropping this half would end the client's input.
    to_client.forget();
}

/// How copying ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// At the end of the input, which was passed on.
    Said,
    /// The reading side is broken.
    Broken,
    /// The writing side takes no more bytes.
    Refused,
}

/// Copies to the end of the input and shuts down; returns both halves.
async fn copy<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(mut from: R, mut to: W) -> (R, W, End) {
    let mut buffer = vec![0; 16 * 1024];
    let end = loop {
        match from.read(&mut buffer).await {
            Ok(0) => break End::Said,
            Ok(count) if to.write_all(&buffer[..count]).await.is_err() => break End::Refused,
            Ok(_) if to.flush().await.is_err() => break End::Refused,
            Ok(_) => {}
            // The server closed without close_notify; the client must judge from the received bytes whether
            // that is the end.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break End::Said,
            Err(_) => break End::Broken,
        }
    };
    if end == End::Said {
        // If this side is already closed, the shutdown fails, which does not matter.
        let _ended = to.shutdown().await;
    }
    (from, to, end)
}
