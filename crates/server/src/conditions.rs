//! Conditions: what a running server cannot do, or only with a delay, until it recovers or a person acts.
//!
//! `tier` reports the present conditions ([`Tier::conditions`]). This file records when each was first seen,
//! and logs a line when it begins and when it ends; `GET /ready` shows them.

use crate::condition::{Condition, State};
use crate::tier::Tier;
use forebay_terminal::{say, warn};
use forebay_value::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How often the conditions are compared with the previous ones. Limits the log lines of a flapping
/// condition.
const LOOK: Duration = Duration::from_millis(250);

/// A condition, and when it was first seen.
struct OngoingCondition {
    condition: Condition,
    since: Timestamp,
    began: Instant,
}

/// Conditions reported by parts other than the tier: at most one for each state.
#[derive(Clone, Default)]
pub struct Notices(Arc<parking_lot::Mutex<Vec<Condition>>>);

impl Notices {
    /// Sets the reason of a state; `None`: the state has ended.
    pub(crate) fn set(&self, state: State, why: Option<String>) {
        let mut notices = self.0.lock();
        notices.retain(|notice| notice.state != state);
        notices.extend(why.map(|why| Condition::new(state, why)));
    }
}

/// The conditions of a server, and since when each lasts.
pub struct Conditions {
    tier: Arc<Tier>,
    notices: Notices,
    /// Locked while the tier is queried, so that an older result does not replace a newer one.
    lasting: Mutex<Vec<OngoingCondition>>,
}

impl Conditions {
    /// The conditions of this tier and of other parts.
    pub fn new(tier: Arc<Tier>, notices: Notices) -> Conditions {
        Conditions { tier, notices, lasting: Mutex::default() }
    }

    /// Compares the conditions periodically. Never returns.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look().await;
        }
    }

    /// Compares the conditions once, with a log line for each that has begun or ended.
    pub async fn look(&self) {
        self.renew(&mut *self.lasting.lock().await).await;
    }

    /// The present answer to `GET /ready`: status and body.
    pub(crate) async fn ready(&self) -> (u16, Value) {
        let mut lasting = self.lasting.lock().await;
        self.renew(&mut lasting).await;
        let is_ready = lasting.iter().all(|lasting| lasting.condition.state.is_served());
        let status = match lasting.is_empty() {
            true => "ready",
            false if is_ready => "degraded",
            false => "not ready",
        };
        let conditions: Vec<_> =
            lasting.iter().map(|lasting| shown(&lasting.condition, lasting.since)).collect();
        let mut answer = json!({ "status": status, "conditions": conditions });
        if let Some((followed, idle_slots)) = self.tier.followed() {
            answer["followed"] = followed;
            if !idle_slots.is_empty() {
                answer["idle_slots"] = idle_slots.into();
            }
        }
        if let Some(workers) = self.tier.workers() {
            answer["workers"] = workers;
        }
        (if is_ready { 200 } else { 503 }, answer)
    }

    /// State and table of each present condition.
    pub(crate) async fn words(&self) -> Vec<(&'static str, Option<String>)> {
        let mut lasting = self.lasting.lock().await;
        self.renew(&mut lasting).await;
        lasting.iter().map(|of| (of.condition.state.word(), of.condition.table.clone())).collect()
    }

    async fn renew(&self, lasting: &mut Vec<OngoingCondition>) {
        let mut found = self.tier.conditions().await;
        found.extend_from_slice(&self.notices.0.lock());
        lasting.retain(|old| {
            let holds = found.iter().any(|new| new.is_same(&old.condition));
            if !holds {
                let seconds = old.began.elapsed().as_secs_f64();
                say!("over after {seconds:.1} s: {}", old.condition.name());
            }
            holds
        });
        for new in found {
            match lasting.iter_mut().find(|old| old.condition.is_same(&new)) {
                Some(old) => old.condition = new,
                None => {
                    warn!("{}: {}: {}", new.state.status(), new.name(), new.why);
                    lasting.push(OngoingCondition {
                        condition: new,
                        since: Timestamp::now(),
                        began: Instant::now(),
                    });
                }
            }
        }
    }
}

/// A condition as `/ready` shows it.
pub(crate) fn shown(condition: &Condition, since: Timestamp) -> Value {
    let Condition { state, table, why } = condition;
    let mut shown = json!({ "state": state.word(), "since": since.to_string(), "why": why });
    if let Some(table) = table {
        shown["table"] = table.as_str().into();
    }
    shown
}
