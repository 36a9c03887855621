//! HTTP/2 (RFC 9113): the same service, gate and limits for clients that speak it, by ALPN over TLS and by
//! prior knowledge without TLS.
//!
//! The `h2` crate implements frames, header compression, flow control and the rules of the protocol. This
//! module turns its requests into the calls that HTTP/1 makes ([`head`]), and the answers of the engine into
//! its responses ([`answer`]); [`stream`] is one request from its head to the end of its answer, [`driver`]
//! the connection, [`wire`] the transport of its bytes.
//!
//! Promises: no answer leaves before the gate has passed its mark; a stream that its client resets drops the
//! deferred work as a closed connection does; the cost of a client is bounded ([`driver`] lists the bounds).
//! Streams are independent: their answers have no order.

mod answer;
mod driver;
mod gauge;
mod head;
mod sending;
mod stream;
mod waiting;
mod wire;

use crate::Service;
use crate::client::Network;
use crate::connection::ContinuedConnection;
use crate::limits::{BROKEN_STREAMS_MAX, CONNECTION_WINDOW_BYTES, Limits, PIPE_BYTES, STREAM_WINDOW_BYTES};
use crate::local::{Idle, WithTimeout};
use crate::transport::Transport;
use bytes::Bytes;
use driver::Driver;
use wire::Wire;

/// Serves a client that speaks HTTP/2, until the end of its connection.
pub(crate) async fn serve<S: Service, T: Transport>(begun: ContinuedConnection<S, T>) {
    let ContinuedConnection { stream, origin, shared, counted, input } = begun;
    let (wire, traffic) = Wire::new(stream, input);
    let handshake = Box::pin(builder(&shared.limits).handshake::<_, Bytes>(wire));
    // A wrong or late preface gets no answer.
    let network = Network::of(origin.peer.ip());
    if let Some(Ok(connection)) =
        WithTimeout::new(shared.limits.head_timeout_ms, Idle::Since, network, handshake).await
    {
        Driver::new(connection, traffic, origin, shared).await;
    }
    drop(counted);
}

fn builder(limits: &Limits) -> h2::server::Builder {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    // The list counts 32 bytes per field besides its text (RFC 9113 section 6.5.2).
    let header_list_bytes = limits.head_bytes + 32 * limits.fields;
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(number(limits.pipeline_depth))
        .max_header_list_size(number(header_list_bytes))
        .initial_window_size(number(STREAM_WINDOW_BYTES))
        .initial_connection_window_size(number(CONNECTION_WINDOW_BYTES))
        .max_send_buffer_size(PIPE_BYTES)
        .max_local_error_reset_streams(Some(BROKEN_STREAMS_MAX));
    builder
}
