//! The drain's own tables: created when they are first needed, altered from the form of an earlier version,
//! and removed.

use super::making::{make, making, moved};
use super::own_schema;
use super::session::Session;
use super::table::text;
use super::{Bulk, Postgres, dead_letters, follow, held_changes, positions};
use crate::Error;
use crate::held_changes::{in_use, would_lose};
use crate::limits::{BULK_ANSWER_MS, CLAIM_MS};
use forebay_value::Value;
use std::sync::atomic::Ordering;

impl Postgres {
    pub(crate) async fn remove_all(&self) -> Result<Vec<String>, Error> {
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
            let session = &mut *session;
            moved(session).await?;
            making!(session, removable(session).await)?;
            let mut removed = follow::remove(session).await?;
            removed.extend(making!(session, remove_once(session).await)?);
            Ok(removed)
        })
        .await
    }
}

/// The drain's tables that are there.
///
/// # Errors
/// Why one of them is not to be removed.
async fn removable(session: &mut Session) -> Result<Vec<&'static str>, Error> {
    let mut tables = Vec::new();
    for table in own_schema::DRAIN_TABLES {
        let there = format!("SELECT to_regclass('_forebay.{table}') IS NOT NULL");
        if session.run(&there, &[]).await?.values != [Value::Bool(true)] {
            continue;
        }
        if let Some(why) = why_kept(session, table).await? {
            return Err(why);
        }
        tables.push(table);
    }
    Ok(tables)
}

async fn remove_once(session: &mut Session) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    for table in removable(session).await? {
        session.execute(&format!("DROP TABLE _forebay.{table}")).await?;
        removed.push(format!("table {}.{table}", session.own));
    }
    let empty = "SELECT NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace($1)) \
           AND NOT EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace($1)) \
           AND EXISTS (SELECT FROM pg_namespace WHERE nspname = $1 AND pg_has_role(nspowner, 'USAGE'))";
    let own = session.own.clone();
    if session.run(empty, &[Value::Text((&*own).into())]).await?.values == [Value::Bool(true)] {
        session.execute(&format!("DROP SCHEMA {own}")).await?;
        removed.push(format!("schema {own}"));
    }
    Ok(removed)
}

/// Why a table of the drain is not removed.
async fn why_kept(session: &mut Session, table: &str) -> Result<Option<Error>, Error> {
    match table {
        "forebay_dead_letter" | "forebay_held" => {
            let rows = session.run(&format!("SELECT count(*) FROM _forebay.{table}"), &[]).await?;
            Ok((rows.values != [Value::Bigint(0)]).then(|| would_lose(table)))
        }
        "forebay_position" => {
            let used = format!(
                "SELECT server FROM _forebay.forebay_position WHERE pending > 0 OR tables ~ '^[^-]' \
                   AND updated_at > clock_timestamp() - interval '{CLAIM_MS} milliseconds' LIMIT 1"
            );
            Ok(session.run(&used, &[]).await?.values.first().map(|server| in_use(text(server))))
        }
        _ => Ok(None),
    }
}

impl Bulk {
    /// Creates the drain's tables, once.
    pub(super) async fn make_drain_tables(&self, session: &mut Session) -> Result<(), Error> {
        if self.has_drain_tables.load(Ordering::Relaxed) {
            return Ok(());
        }
        let schema = own_schema::creation(&session.own);
        let tables = [&*schema, positions::TABLE, dead_letters::TABLE, held_changes::TABLE].join(";");
        make(session, &tables).await?;
        self.has_drain_tables.store(true, Ordering::Relaxed);
        Ok(())
    }
}
