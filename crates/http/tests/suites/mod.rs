//! What holds with TLS and without: `plain.rs` and `secure.rs` run these.

mod http2;
mod order;
mod pressure;
mod protocol;
mod streams;
mod tunnels;
