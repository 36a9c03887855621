//! The smallest sensible hyper server: one thread, one fixed JSON answer, no limits, no time-outs, no routes.
//!
//! `minimal-hyper [--port 3101]`. It is only a yardstick; answers to pipelined requests are flushed
//! together, which is the fastest that hyper offers.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::process::ExitCode;
use tokio::net::TcpListener;

async fn answer(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(br#"{"message":"hi"}"#)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn port() -> Option<u16> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Some(3101),
        (Some("--port"), Some(port)) => port.parse().ok(),
        _ => None,
    }
}

async fn serve(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("minimal-hyper: 127.0.0.1:{port}");
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.pipeline_flush(true);
            // A client that disconnects only ends its connection; the error is ignored.
            let _closed = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        });
    }
}

fn main() -> ExitCode {
    let Some(port) = port() else {
        eprintln!("usage: minimal-hyper [--port PORT]");
        return ExitCode::from(2);
    };
    let served = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(serve(port)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("minimal-hyper: {error}");
            ExitCode::FAILURE
        }
    }
}
