//! Wrong credentials: how many a client may send before no more of its credentials are verified.
//!
//! Promises that a client whose credentials are known is served, whoever else shares its address: what can be
//! verified at once is verified before the rate is asked.

use super::identity::Refused;
use crate::endpoint::callers::Callers;
use crate::limits::{WRONG_A_MINUTE, WRONG_SETS};
use forebay_http::Request;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

/// The wrong credentials of clients, by their networks.
pub struct WrongCredentials {
    callers: Callers,
    began: Instant,
}

/// A client that sends credentials.
#[derive(Debug, Clone, Copy)]
pub struct Sender(u64);

impl WrongCredentials {
    pub fn new() -> WrongCredentials {
        let callers = Callers::new(WRONG_A_MINUTE, Duration::from_secs(60), WRONG_SETS);
        WrongCredentials { callers, began: Instant::now() }
    }

    /// The client of a request.
    pub fn sender(&self, request: &Request<'_>) -> Sender {
        Sender(self.callers.hasher.hash_one(request.client().network()))
    }

    /// Whether a client has sent too many wrong credentials for more of them to be verified.
    pub fn check(&self, sender: Sender) -> Result<(), Refused> {
        let wait = self.callers.wait(sender.0, self.now_ns());
        wait.map_or(Ok(()), |wait| Err(Refused::TooOften { wait_s: wait.as_secs() + 1 }))
    }

    /// Counts a refusal, if the credentials were wrong.
    pub fn count(&self, sender: Sender, refused: &Refused) {
        if let Refused::Invalid(_) = refused {
            // The error means that the client has used up its budget already.
            let _taken = self.callers.take(sender.0, self.now_ns());
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 2)
    }
}
