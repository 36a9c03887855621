//! Lifetimes and consistency of one endpoint's cached answers.

/// Consistency of reads after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// The server that answered the write no longer serves the older answer. Other servers drop it
    /// when the invalidation reaches them, at the latest when `local` ends.
    #[default]
    Eventual,
    /// No server serves the older answer to a request that began after the write was answered.
    Strict,
}

/// The rules of one endpoint; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Consistency of reads after a write.
    pub consistency: Consistency,
    /// How long an answer is fresh in this process; 0: not stored here where there is a shared level.
    pub local_ms: u64,
    /// How long an answer is fresh on the shared level; `None`: it is not stored there. Without a
    /// shared level it is fresh here for the longer of the two: only this process writes, so no
    /// invalidation can be missed.
    pub shared_ms: Option<u64>,
    /// How long a 404 is fresh; 0: it is not stored.
    pub missing_ms: u64,
    /// How much longer an answer is served while it is refreshed.
    pub stale_while_revalidate_ms: u64,
    /// How much longer an answer is served while refreshing fails.
    pub stale_if_error_ms: u64,
    /// A request in this last part of an answer's lifetime starts a refresh in the background.
    pub refresh_ms: u64,
    /// Whether the answer is sent compressed to clients that accept that.
    pub compress: bool,
    /// The value of Cache-Control: what browsers and proxies may do with it.
    pub cache_control: Box<str>,
    /// The value of Vary, without Accept-Encoding; empty for none.
    pub vary: Box<str>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            consistency: Consistency::Eventual,
            local_ms: 1_000,
            shared_ms: None,
            missing_ms: 1_000,
            stale_while_revalidate_ms: 0,
            stale_if_error_ms: 0,
            refresh_ms: 0,
            compress: false,
            cache_control: "no-cache".into(),
            vary: "".into(),
        }
    }
}

impl Rules {
    /// Lifetime of an answer, and its lifetime in this process.
    pub(crate) fn lives_ms(&self, has_shared: bool) -> (u64, u64) {
        match self.shared_ms {
            Some(shared_ms) if has_shared => (shared_ms, self.local_ms.min(shared_ms)),
            Some(shared_ms) => (shared_ms.max(self.local_ms), shared_ms.max(self.local_ms)),
            None => (self.local_ms, self.local_ms),
        }
    }

    /// Whether answers are stored on the shared level.
    pub(crate) fn shares(&self) -> bool {
        self.shared_ms.is_some()
    }
}
