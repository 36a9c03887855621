//! The drain's own tables in the database: created when they are first needed, and altered from the form of
//! an earlier version.

use super::session::Session;
use super::{Bulk, dead_letters, held_changes, positions};
use crate::Error;
use std::sync::atomic::Ordering;

/// Servers that start together create the tables, and make their claims, one after the other: without the
/// lock, two could fail on each other's statements, or miss each other's claims.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(7381153037424621934)";

impl Bulk {
    /// Creates the drain's tables, once.
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
