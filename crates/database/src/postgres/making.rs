//! How objects are created in the database: by one server at a time, without holding up others for long.

use super::errors;
use super::own_schema::{DRAIN_TABLES, creation};
use super::session::Session;
use crate::limits::{FOLLOW_LOCK_PAUSE_MS, FOLLOW_LOCK_TRIES, FOLLOW_LOCK_WAIT_MS};
use crate::{Error, Kind};
use forebay_value::Value;
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
        let mut making = $crate::postgres::making::Making::default();
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

/// Whether a table of ours is where an earlier version had it, and not in our schema.
const ARE_ELSEWHERE: &str = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = current_schema() AND n.nspname <> $1 AND c.relname = ANY (ARRAY(SELECT jsonb_array_elements_text($2::text::jsonb))) \
       AND NOT EXISTS (SELECT FROM pg_class o JOIN pg_namespace s ON s.oid = o.relnamespace WHERE s.nspname = $1 AND o.relname = c.relname))";

/// Moves the drain's tables from where an earlier version had them; returns whether there were any.
pub(super) async fn moved(session: &mut Session) -> Result<bool, Error> {
    let names = serde_json::to_string(&DRAIN_TABLES).expect("texts are JSON");
    let params = [&*session.own, names.as_str()].map(|text| Value::Text(text.into()));
    let are_elsewhere = session.run(ARE_ELSEWHERE, &params).await?.values == [Value::Bool(true)];
    let creation = creation(&session.own);
    match are_elsewhere {
        true if session.in_transaction => session.execute(&format!("{LOCK};{creation}")).await?,
        true => make(session, &creation).await?,
        false => {}
    }
    Ok(are_elsewhere)
}
