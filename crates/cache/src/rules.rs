//! What an endpoint promises of its cached answers.

/// What a client may count on after somebody wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Promise {
    /// Where the write was answered, nobody sees the older answer any more; other servers drop it
    /// when they hear of the write, at the latest when `burst` ends.
    #[default]
    Eventual,
    /// No request that began after a write was answered sees the older answer, on any server.
    Strict,
}

/// How long, in milliseconds, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// What a client may count on after somebody wrote.
    pub promise: Promise,
    /// How long an answer is good in this process; 0: not at all, where there is a shared level.
    pub burst_ms: u64,
    /// How long an answer is good on the shared level, `None`: it is not put there. In a process
    /// without one it is good here for the longer of the two: nobody else can write unheard.
    pub shared_ms: Option<u64>,
    /// How long a 404 is good; 0: it is not kept.
    pub missing_ms: u64,
    /// How much longer an answer is shown while a new one is fetched.
    pub stale_while_revalidate_ms: u64,
    /// How much longer an answer is shown while no new one can be had.
    pub stale_if_error_ms: u64,
    /// A request in this last part of an answer's life has a new one fetched.
    pub refresh_ms: u64,
    /// Whether it is sent compressed to whoever takes that.
    pub compress: bool,
    /// The value of Cache-Control: what browsers and proxies may do with it.
    pub cache_control: Box<str>,
    /// The value of Vary, without Accept-Encoding; empty for none.
    pub vary: Box<str>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            promise: Promise::Eventual,
            burst_ms: 1_000,
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
    /// How long an answer is good, and how long it is good in this process.
    pub(crate) fn lives_ms(&self, has_shared: bool) -> (u64, u64) {
        match self.shared_ms {
            Some(shared_ms) if has_shared => (shared_ms, self.burst_ms.min(shared_ms)),
            Some(shared_ms) => (shared_ms.max(self.burst_ms), shared_ms.max(self.burst_ms)),
            None => (self.burst_ms, self.burst_ms),
        }
    }

    /// Whether answers go to the shared level.
    pub(crate) fn shares(&self) -> bool {
        self.shared_ms.is_some()
    }
}
