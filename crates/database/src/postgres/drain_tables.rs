//! The tables that the drain keeps in the database: made when they are first needed, and brought from the
//! form that an earlier version gave them.

use super::session::Session;
use super::{Bulk, dead_letters, held_changes, positions};
use crate::Error;
use std::sync::atomic::Ordering;

/// Those who start together make the tables, and their claims, one after the other: without the lock, two
/// would fail on each other's, or not see each other's.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(7381153037424621934)";

impl Bulk {
    /// Makes the drain's tables, once.
    pub(super) async fn make_drain_tables(&self, session: &mut Session) -> Result<(), Error> {
        if self.has_drain_tables.load(Ordering::Relaxed) {
            return Ok(());
        }
        session.in_transaction = true;
        let tables = [positions::TABLE, dead_letters::TABLE, held_changes::TABLE].join(";");
        session.execute(&format!("BEGIN;{LOCK};{tables};COMMIT")).await?;
        session.in_transaction = false;
        self.has_drain_tables.store(true, Ordering::Relaxed);
        Ok(())
    }
}
