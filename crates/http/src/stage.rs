//! Which part of a request a connection has read, and the deadline for the rest.

use crate::intake::Intake;
use crate::limits::Limits;
use crate::pace::Pace;
use crate::upgraded::Upgraded;

/// The kind of input that the next byte belongs to.
#[derive(Debug)]
pub(crate) enum Stage {
    /// A request head, and the time of its first byte.
    Head { began_ms: Option<u64> },
    /// A body that did not arrive with its head.
    Body(Box<Intake>),
    /// Another protocol.
    Tunnel(Box<Upgraded>),
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::Head { began_ms: None }
    }
}

impl Stage {
    /// The client's deadline; `None` before its first byte.
    pub(crate) fn deadline(&self, limits: &Limits) -> Option<u64> {
        match self {
            Stage::Head { began_ms } => began_ms.map(|began_ms| began_ms + limits.head_timeout_ms),
            Stage::Tunnel(_) => None,
            Stage::Body(intake) => Some(intake.pace.deadline_ms(limits)),
        }
    }

    /// The pace of the body that arrives.
    fn pace(&mut self) -> Option<&mut Pace> {
        match self {
            Stage::Head { .. } | Stage::Tunnel(_) => None,
            Stage::Body(intake) => Some(&mut intake.pace),
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

    /// Whether reading must wait until the service has read from the body.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Stage::Body(intake) if intake.is_full())
    }

    /// Whether the service dropped the body before its end.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self, Stage::Body(intake) if intake.is_abandoned())
    }
}

/// Appends to a buffer that is kept for a while: it grows by a quarter, not to twice its length.
pub(crate) fn append(buffer: &mut Vec<u8>, bytes: &[u8]) {
    if buffer.capacity() - buffer.len() < bytes.len() {
        buffer.reserve_exact(bytes.len().max(buffer.len() / 4));
    }
    buffer.extend_from_slice(bytes);
}
