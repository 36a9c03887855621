//! What a process does of its config: serving clients, draining, running jobs. A server does all three; on
//! Redis and Valkey it may leave the drain and the jobs to other processes, and a worker serves no clients.
//!
//! Promises: what a process leaves out can be done by another one, else the start is refused; and the start
//! prints what is left to others.

use crate::start_error::StartError;
use forebay_config::{Config, model};
use forebay_terminal::say;
use std::borrow::Cow;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duties {
    /// Whether it serves clients.
    pub clients: bool,
    /// Whether it writes the queues to the database.
    pub drain: bool,
    /// Whether it runs `[[job]]`s.
    pub jobs: bool,
}

impl Default for Duties {
    fn default() -> Duties {
        Duties { clients: true, drain: true, jobs: true }
    }
}

impl Duties {
    /// Fails if a duty that only this process can do is left to others.
    pub(crate) fn check(self, config: &Config) -> Result<(), StartError> {
        let why = match (&config.memory.tier, self.clients, self.drain) {
            (model::Tier::Embedded, false, _) => {
                "drain --forever drains a memory tier on Redis or Valkey; an embedded one is drained by the server that \
                 has its log (forebay serve)"
            }
            (model::Tier::Embedded, _, false) => {
                "serve --without drain needs a memory tier on Redis or Valkey: no other process can drain the log of an \
                 embedded one"
            }
            _ => return Ok(()),
        };
        Err(format!("{why}; memory.url is {}", config.memory.describe()).into())
    }

    /// The config without the parts that this process leaves to others and does not need.
    pub(crate) fn narrow(self, config: &Config) -> Cow<'_, Config> {
        if self.clients { Cow::Borrowed(config) } else { Cow::Owned(config.clone().without_clients()) }
    }

    /// Prints what is left to others.
    pub(crate) fn announce(self, config: &Config) {
        let (memory, database) = (config.memory.describe(), config.database.describe());
        if !self.clients {
            say!("draining {memory} into {database}; no clients are served");
        }
        if !self.drain {
            say!("{memory} is drained by other processes (forebay drain --forever): not by this one");
        }
        if !self.jobs && !config.jobs.is_empty() {
            say!("jobs are run by other processes: not by this one");
        }
    }
}
