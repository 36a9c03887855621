//! Tests that hold with and without TLS: `plain.rs` and `secure.rs` run them.

mod http2;
mod order;
mod pressure;
mod protocol;
mod streams;
mod tunnels;
