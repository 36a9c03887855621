//! Which part of a request a connection has read, and the deadline for the rest.

use crate::chunked::ChunkedDecoder;
use crate::intake::Intake;
use crate::limits::Limits;
use crate::pace::Pace;
use crate::upgraded::Upgraded;

/// The kind of input that the next byte belongs to.
#[derive(Debug)]
pub(crate) enum Stage {
    /// A request head, and the time of its first byte.
    Head { began_ms: Option<u64> },
    /// A request with a valid head, until this many bytes of head and body have arrived.
    Body { total_bytes: usize, pace: Pace },
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
    pub(crate) pace: Pace,
}

impl Stage {
    /// The client's deadline; `None` before its first byte.
    pub(crate) fn deadline(&self, limits: &Limits) -> Option<u64> {
        match self {
            Stage::Head { began_ms } => began_ms.map(|began_ms| began_ms + limits.head_timeout_ms),
            Stage::Tunnel(_) => None,
            Stage::Body { pace, .. } => Some(pace.deadline_ms(limits)),
            Stage::Chunked(chunked) => Some(chunked.pace.deadline_ms(limits)),
            Stage::Streaming(intake) => Some(intake.pace.deadline_ms(limits)),
        }
    }

    /// The pace of the body that arrives.
    fn pace(&mut self) -> Option<&mut Pace> {
        match self {
            Stage::Head { .. } | Stage::Tunnel(_) => None,
            Stage::Body { pace, .. } => Some(pace),
            Stage::Chunked(chunked) => Some(&mut chunked.pace),
            Stage::Streaming(intake) => Some(&mut intake.pace),
        }
    }

    /// Counts bytes that have arrived.
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize, now_ms: u64, limits: &Limits) {
        if let Some(pace) = self.pace() {
            pace.count(bytes, now_ms, limits);
        }
    }

    /// Restarts the client's deadline.
    pub(crate) fn restart(&mut self, now_ms: u64) {
        if let Some(pace) = self.pace() {
            *pace = Pace::new(now_ms);
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
