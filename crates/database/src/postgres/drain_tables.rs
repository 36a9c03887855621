//! How objects are created in the database; and the drain's own tables: created when they are first needed,
//! and altered from the form of an earlier version.

use super::session::Session;
use super::{Bulk, dead_letters, errors, held_changes, positions};
use crate::limits::{FOLLOW_LOCK_PAUSE_MS, FOLLOW_LOCK_TRIES, FOLLOW_LOCK_WAIT_MS};
use crate::{Error, Kind};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Servers that start together create what they need (tables, triggers, functions), and make their
/// claims, one after the other, and look after they have the lock: without it, two could fail on each
/// other's statements, or miss each other's claims.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(7381153037424621934)";

/// Tries to create or alter objects, one server at a time ([`LOCK`]). Each try waits for locks only shortly,
/// so that other writers do not queue behind it for long.
#[derive(Default)]
pub(super) struct Making {
    tries: usize,
}

impl Making {
    /// Begins the transaction of a try.
    pub(super) async fn begin(&self, session: &mut Session) -> Result<(), Error> {
        session.begin(&begin()).await
    }

    /// Ends the transaction; `None`: to be tried again.
    pub(super) async fn end<T>(
        &mut self,
        session: &mut Session,
        made: Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        self.tries += 1;
        match session.end(made).await {
            Err(error) if may_be_made_again(&error) && self.tries < FOLLOW_LOCK_TRIES => {}
            ended => return Some(ended),
        }
        tokio::time::sleep(Duration::from_millis(FOLLOW_LOCK_PAUSE_MS)).await;
        None
    }
}

fn begin() -> String {
    format!("BEGIN;SET LOCAL lock_timeout = {FOLLOW_LOCK_WAIT_MS};{LOCK}")
}

/// Runs statements in a transaction of [`Making`], as often as needed, each time in one round trip.
pub(super) async fn make(session: &mut Session, sql: &str) -> Result<(), Error> {
    let mut making = Making::default();
    loop {
        session.in_transaction = true;
        match session.execute(&format!("{};{sql};COMMIT", begin())).await {
            Ok(()) => {
                session.in_transaction = false;
                return Ok(());
            }
            Err(error) => {
                if let Some(ended) = making.end(session, Err(error)).await {
                    return ended;
                }
            }
        }
    }
}

/// Evaluates an expression in a transaction of [`Making`], as often as needed.
macro_rules! making {
    ($session:expr, $make:expr) => {{
        let mut making = $crate::postgres::drain_tables::Making::default();
        loop {
            let made = match making.begin($session).await {
                Ok(()) => $make,
                Err(error) => Err(error),
            };
            if let Some(ended) = making.end($session, made).await {
                break ended;
            }
        }
    }};
}

pub(super) use making;

/// Whether a lock was not available in time, or another client created or altered the same object meanwhile.
pub(super) fn may_be_made_again(error: &Error) -> bool {
    *error.kind() == Kind::Busy || errors::is_made_by_another(error)
}

impl Bulk {
    /// Creates the drain's tables, once.
    pub(super) async fn make_drain_tables(&self, session: &mut Session) -> Result<(), Error> {
        if self.has_drain_tables.load(Ordering::Relaxed) {
            return Ok(());
        }
        let tables = [positions::TABLE, dead_letters::TABLE, held_changes::TABLE].join(";");
        make(session, &tables).await?;
        self.has_drain_tables.store(true, Ordering::Relaxed);
        Ok(())
    }
}
