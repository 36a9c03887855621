//! Which server runs a job.
//!
//! On Redis and Valkey two keys decide, and both expire: the lease, which the server that runs a job renews
//! meanwhile, and the rest, which exists from the beginning of a run until the next run is due. A server that
//! finds neither takes both, in one script. When a server dies, another takes over after its lease has
//! expired.
//!
//! A server that is cut off from Redis, or finds its lease gone, ends its job before another server begins:
//! it may begin its statement until [`FREE`] after a renewal, then it abandons the job. The lease lasts
//! longer than that by the longest time that a statement may run ([`Store::statement_limit`]). Not covered: a
//! lease that Redis itself loses (it is as durable as `memory.durability`; a clock that jumps ahead ends it),
//! and a network that delivers a statement later than its timeout.
//!
//! [`Store::statement_limit`]: forebay_database::Store::statement_limit
//!
//! With an embedded tier a data folder has one server (its log is locked), so there is no other server to
//! agree with.

use crate::functions;
use forebay_redis::{Error, Link, Script, Value, slot_of};
use forebay_terminal::warn;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How long a server continues without renewing its lease.
const FREE: Duration = Duration::from_secs(10);
/// How often a lease is renewed: two renewals may fail.
const RENEW: Duration = Duration::from_secs(3);
const _: () = assert!(FREE.as_secs() > 3 * RENEW.as_secs());

static TAKE: Script = Script::new("job_take", include_str!("take.lua"));
static RENEW_LEASE: Script = Script::new("job_renew", include_str!("renew.lua"));
static END: Script = Script::new("job_end", include_str!("end.lua"));

/// How servers agree on who runs a job.
#[derive(Clone)]
pub enum Lease {
    /// There is one server only.
    Alone,
    /// By keys on a tier that several servers share.
    Shared {
        /// The connection to the tier.
        link: Link,
        /// The prefix of the keys.
        root: Arc<str>,
        /// Identifies this server among the others.
        token: Arc<[u8]>,
        /// How long the lease lasts.
        life: Duration,
    },
}

/// Whose turn it is to run the job.
pub(super) enum Turn {
    Ours,
    /// Not ours before this time has passed.
    Others {
        wait: Duration,
    },
}

impl Lease {
    /// A lease of this process on that tier; its keys begin with `root`. A statement runs for at most
    /// `statement_limit`.
    pub fn shared(link: Link, root: &str, statement_limit: Duration) -> Lease {
        let token = functions::uuid4().as_bytes().as_slice().into();
        Lease::Shared { link, root: root.into(), token, life: FREE + statement_limit }
    }

    /// Takes the turn, if no other server has it.
    pub(super) async fn take(&self, job: &str, every: Duration) -> Result<Turn, Error> {
        let Lease::Shared { life, .. } = self else { return Ok(Turn::Ours) };
        let answer = self.call(&TAKE, job, vec![millis(*life), millis(every)]).await?;
        Ok(match answer {
            Value::Int(0) => Turn::Ours,
            Value::Int(wait_ms) => Turn::Others { wait: Duration::from_millis(wait_ms.unsigned_abs()) },
            // The script returns nothing else; trying again later is safe in any case.
            _ => Turn::Others { wait: RENEW },
        })
    }

    /// Renews the lease taken at `taken`. Resolves when the job must not continue, with the reason.
    pub(super) async fn until_lost(&self, job: &str, taken: Instant) -> String {
        let Lease::Shared { life, .. } = self else { return std::future::pending().await };
        let mut renewed = taken;
        loop {
            if renewed.elapsed() >= FREE {
                return format!(
                    "its lease was not renewed for {} s; what it did is not known",
                    FREE.as_secs()
                );
            }
            sleep(RENEW.min(FREE.saturating_sub(renewed.elapsed()))).await;
            let asked = Instant::now();
            let renewal = self.call(&RENEW_LEASE, job, vec![millis(*life)]);
            match timeout(FREE.saturating_sub(renewed.elapsed()), renewal).await {
                Ok(Ok(Value::Int(1))) => renewed = asked,
                Ok(Ok(_)) => return "its lease was lost; what it did is not known".into(),
                Ok(Err(error)) => warn!("job {job}: cannot renew its lease: {error}"),
                Err(_) => {}
            }
        }
    }

    /// Releases the lease. If the release fails, the lease expires.
    pub(super) async fn end(&self, job: &str) {
        let _ended = self.call(&END, job, Vec::new()).await;
    }

    async fn call(&self, script: &'static Script, job: &str, args: Vec<Vec<u8>>) -> Result<Value, Error> {
        let Lease::Shared { link, root, token, .. } = self else { return Ok(Value::Int(0)) };
        let keys = ["lease", "rest"].map(|key| format!("{root}{{job:{job}}}:{key}").into_bytes());
        let slot = slot_of(&keys[0]);
        let args = std::iter::once(token.to_vec()).chain(args).collect();
        link.write(slot, script, keys.into(), args).await
    }
}

/// A duration as a script argument.
fn millis(time: Duration) -> Vec<u8> {
    time.as_millis().to_string().into_bytes()
}
