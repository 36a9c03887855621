//! Requests that are refused before a service sees them.

use crate::client::Origin;

/// Why a request is refused: the status of the answer, and its detail for a human. The connection is closed
/// after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// HTTP status.
    pub status: u16,
    /// One sentence without a full stop.
    pub detail: &'static str,
}

impl Reject {
    /// A refusal with this status and detail.
    pub const fn new(status: u16, detail: &'static str) -> Reject {
        Reject { status, detail }
    }
}

/// A refused request, as a service is informed of it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Refused {
    /// The peer that sent the request.
    pub origin: Origin,
    /// HTTP status.
    pub status: u16,
    /// The reason, as in [`Reject`].
    pub detail: &'static str,
}

/// The answer to a body that is longer than its service permits.
pub(crate) const BODY_TOO_LARGE: Reject = Reject::new(413, "the request body is too large");
/// The answer to a body that does not keep its pace.
pub(crate) const BODY_TOO_SLOW: Reject = Reject::new(408, "the request body took too long");
/// The answer to a body that had to make room for others.
pub(crate) const NO_ROOM_FOR_BODY: Reject = Reject::new(503, "too many request bodies arrive at one time");
