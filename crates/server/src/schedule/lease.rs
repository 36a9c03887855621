//! Whose turn a job is.
//!
//! On Redis and Valkey two keys decide, both gone by themselves: the lease, which the server that runs a
//! job renews while it does, and the rest, which stands from the beginning of a run until the next is due.
//! A server that finds neither takes both, in one script. A server that dies is followed by another when
//! its lease has run out; one that is cut off from Redis for longer than that may still be running its
//! statement when another begins: what a job does must bear that.
//!
//! With an embedded tier there is one server a data folder (its log is locked), and no other server to
//! agree with.

use crate::functions;
use forebay_redis::{Error, Link, Script, Value, slot_of};
use forebay_terminal::warn;
use std::sync::Arc;
use std::time::Duration;

/// How long a server that has died keeps others from its job.
const LEASE: Duration = Duration::from_secs(30);
/// How often a lease is renewed: two renewals may fail.
const RENEW: Duration = Duration::from_secs(10);

static TAKE: Script = Script::new("job_take", include_str!("take.lua"));
static RENEW_LEASE: Script = Script::new("job_renew", include_str!("renew.lua"));
static END: Script = Script::new("job_end", include_str!("end.lua"));

/// How servers agree on who runs a job.
#[derive(Clone)]
pub enum Lease {
    /// There is one server.
    Alone,
    /// By keys on a tier that several have in common.
    Shared {
        /// The way to the tier.
        link: Link,
        /// What the keys begin with.
        root: Arc<str>,
        /// What tells this server from the others.
        token: Arc<[u8]>,
    },
}

/// Whose turn it is.
pub(super) enum Turn {
    Ours,
    /// Not ours before so long.
    Others {
        wait: Duration,
    },
}

impl Lease {
    /// A lease of this process on that tier; its keys begin with `root`.
    pub fn shared(link: Link, root: &str) -> Lease {
        Lease::Shared { link, root: root.into(), token: functions::uuid4().as_bytes().as_slice().into() }
    }

    /// Takes the turn, if no other server has it.
    pub(super) async fn take(&self, job: &str, every: Duration) -> Result<Turn, Error> {
        let Lease::Shared { .. } = self else { return Ok(Turn::Ours) };
        let times = [LEASE, every].map(|time| time.as_millis().to_string().into_bytes());
        let answer = self.call(&TAKE, job, times.into()).await?;
        Ok(match answer {
            Value::Int(0) => Turn::Ours,
            Value::Int(wait_ms) => Turn::Others { wait: Duration::from_millis(wait_ms.unsigned_abs()) },
            // The script gives nothing else; asking again later is right whatever this is.
            _ => Turn::Others { wait: RENEW },
        })
    }

    /// Renews the lease while something goes on, and gives it up after.
    pub(super) async fn keep_while(&self, job: &str, work: impl Future<Output = ()>) {
        let Lease::Shared { .. } = self else { return work.await };
        let lifetime = || vec![LEASE.as_millis().to_string().into_bytes()];
        let renewing = async {
            loop {
                tokio::time::sleep(RENEW).await;
                if let Err(error) = self.call(&RENEW_LEASE, job, lifetime()).await {
                    warn!("job {job}: cannot renew its lease: {error}");
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = renewing => {}
        }
        // One that cannot be given back runs out by itself.
        let _ended = self.call(&END, job, Vec::new()).await;
    }

    async fn call(&self, script: &'static Script, job: &str, args: Vec<Vec<u8>>) -> Result<Value, Error> {
        let Lease::Shared { link, root, token } = self else { return Ok(Value::Int(0)) };
        let keys = ["lease", "rest"].map(|key| format!("{root}{{job:{job}}}:{key}").into_bytes());
        let slot = slot_of(&keys[0]);
        let args = std::iter::once(token.to_vec()).chain(args).collect();
        link.write(slot, script, keys.into(), args).await
    }
}
