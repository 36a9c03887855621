//! Which part of a request a connection has read, and the deadline for the rest.

use crate::chunked::ChunkedDecoder;
use crate::intake::Intake;
use crate::limits::Limits;
use crate::upgraded::Upgraded;

/// The kind of input that the next byte belongs to.
#[derive(Debug)]
pub(crate) enum Stage {
    /// A request head, and the time of its first byte.
    Head { began_ms: Option<u64> },
    /// A request with a valid head, until this many bytes of head and body have arrived.
    Body { total_bytes: usize, received_bytes: usize, began_ms: u64 },
    /// A chunked body.
    Chunked(Box<ChunkedBody>),
    /// A streamed body.
    Streaming(Box<Intake>),
    /// Another protocol.
    Tunnel(Box<Upgraded>),
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::Head { began_ms: None }
    }
}

/// A chunked body that is being decoded. The raw chunks are not stored.
#[derive(Debug)]
pub(crate) struct ChunkedBody {
    pub(crate) head: Vec<u8>,
    pub(crate) decoder: ChunkedDecoder,
    pub(crate) body: Vec<u8>,
    pub(crate) began_ms: u64,
}

impl Stage {
    /// The client's deadline; `None` before its first byte.
    pub(crate) fn deadline(&self, limits: &Limits) -> Option<u64> {
        // A body must keep an average pace once the grace period is over; otherwise a body of one byte a
        // second would last forever.
        let body = |began_ms: u64, bytes: usize| {
            began_ms + limits.head_timeout_ms + (bytes as u64 * 1000) / limits.body_bytes_per_s_min
        };
        match self {
            Stage::Head { began_ms } => began_ms.map(|began_ms| began_ms + limits.head_timeout_ms),
            Stage::Tunnel(_) => None,
            Stage::Body { received_bytes, began_ms, .. } => Some(body(*began_ms, *received_bytes)),
            Stage::Chunked(chunked) => Some(body(chunked.began_ms, chunked.body.len())),
            Stage::Streaming(intake) => {
                let bytes = usize::try_from(intake.received_bytes).unwrap_or(usize::MAX / 1000);
                Some(body(intake.began_ms, bytes))
            }
        }
    }

    /// Restarts the client's deadline.
    pub(crate) fn restart(&mut self, now_ms: u64) {
        match self {
            Stage::Head { .. } | Stage::Tunnel(_) => {}
            Stage::Body { began_ms, .. } => *began_ms = now_ms,
            Stage::Chunked(chunked) => chunked.began_ms = now_ms,
            Stage::Streaming(intake) => {
                intake.began_ms = now_ms;
                intake.received_bytes = 0;
            }
        }
    }

    /// Whether reading must wait until the service has read from a streamed body.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Stage::Streaming(intake) if intake.is_full())
    }

    /// Whether the service dropped a streamed body before its end.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self, Stage::Streaming(intake) if intake.is_abandoned())
    }
}
