//! Claims on tables, beside the positions: see `crate::claim`. The claiming server holds the file's only
//! write lock.

use super::Sqlite;
use super::dead_letters::make_drain_tables;
use super::errors::map;
use super::positions::{has_table, log_id, log_text, stored, timestamp};
use super::writer::Session;
use crate::Error;
use crate::claim::{Claim, Claimed, ClaimedQueue, Expected, GIVE_BACK, SET_PENDING, StoredClaim, plan};
use crate::limits::BULK_LOCK_WAIT_MS;
use forebay_value::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;

impl Sqlite {
    pub(crate) async fn claim(&self, claim: Claim) -> Result<Claimed, Error> {
        self.writer.urgent(move |session| claim_tables(session, &claim)).await
    }

    pub(crate) async fn fence(
        &self,
        log: u128,
        before: &str,
        after: &str,
    ) -> Result<Option<(u64, String)>, Error> {
        let (before, after) = (before.to_owned(), after.to_owned());
        let fence = move |session: &mut Session| {
            session.begin(Duration::from_millis(BULK_LOCK_WAIT_MS))?;
            let moved = make_drain_tables(session)
                .and_then(|()| move_opening(&session.connection, log, &before, &after));
            match moved {
                Ok(fenced) => session.commit().map(|()| fenced),
                Err(error) => {
                    session.rollback();
                    Err(error)
                }
            }
        };
        self.writer.urgent(fence).await
    }

    pub(crate) async fn release_claim(&self, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        self.set(GIVE_BACK, log, opening, pending).await
    }

    pub(crate) async fn set_pending(&self, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        self.set(SET_PENDING, log, opening, pending).await
    }

    async fn set(&self, set: &str, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        let sql = format!("UPDATE forebay_position {set}");
        let (opening, pending) = (opening.to_owned(), i64::try_from(pending).unwrap_or(i64::MAX));
        let set = move |session: &mut Session| {
            session.transaction(|session| {
                let values = params![pending, log_text(log), opening];
                session.connection.execute(&sql, values).map(drop).map_err(map)
            })
        };
        self.writer.urgent(set).await
    }

    /// See [`Store::has_known`](crate::Store::has_known).
    pub(crate) async fn has_known(&self, log: u128) -> Result<bool, Error> {
        let read = move |connection: &Connection| {
            if !has_table(connection, "forebay_log").map_err(map)? {
                return Ok(false);
            }
            let mut known = connection.prepare("SELECT 1 FROM forebay_log WHERE log = ?1").map_err(map)?;
            known.exists([log_text(log)]).map_err(map)
        };
        self.readers.submit(read).await
    }
}

fn claim_tables(session: &mut Session, claim: &Claim) -> Result<Claimed, Error> {
    session.begin(Duration::from_millis(BULK_LOCK_WAIT_MS))?;
    if claim.queues.iter().any(|queue| queue.expected == Expected::Nothing) {
        // A position that was lost may have been lost with its table.
        session.has_drain_tables = false;
    }
    let claimed = make_drain_tables(session).and_then(|()| claimed(&session.connection, claim));
    match claimed {
        Ok(Claimed::Done) => session.commit().map(|()| Claimed::Done),
        refused => {
            session.rollback();
            refused
        }
    }
}

/// Makes the claim in the open transaction.
fn claimed(connection: &Connection, claim: &Claim) -> Result<Claimed, Error> {
    let plan = match plan(claim, &found(connection)?) {
        Ok(plan) => plan,
        Err(refused) => return Ok(refused),
    };
    let by = claim.queues.first().map_or_else(String::new, |queue| log_text(queue.log));
    for holder in plan.taken {
        let sql = "UPDATE forebay_position SET tables = '', taken_by = ?2 WHERE log = ?1";
        connection.execute(sql, params![log_text(holder.log), by]).map_err(map)?;
    }
    for log in plan.given_back {
        let sql = "UPDATE forebay_position SET tables = '', taken_by = ?2 WHERE log = ?1";
        connection.execute(sql, params![log_text(log), by]).map_err(map)?;
    }
    for queue in &plan.own {
        if !claim_queue(connection, queue, &plan.tables, claim)? {
            return Ok(Claimed::Moved);
        }
        let log = log_text(queue.log);
        if let Some(pending) = claim.pending {
            let pending = i64::try_from(pending).unwrap_or(i64::MAX);
            let sql = "UPDATE forebay_position SET pending = ?2 WHERE log = ?1";
            connection.execute(sql, params![log, pending]).map_err(map)?;
        }
        if queue.expected != Expected::Any {
            let sql = "INSERT INTO forebay_log (log) VALUES (?1) ON CONFLICT (log) DO NOTHING";
            connection.execute(sql, params![log]).map_err(map)?;
        }
    }
    Ok(Claimed::Done)
}

/// Claims one queue; false when the database has another state for it than was expected.
fn claim_queue(
    connection: &Connection,
    queue: &ClaimedQueue,
    tables: &str,
    claim: &Claim,
) -> Result<bool, Error> {
    let (log, now, first) = (log_text(queue.log), Timestamp::now().to_string(), stored(queue.first)?);
    let Claim { server, opening, .. } = claim;
    let insert = "INSERT INTO forebay_position (log, position, updated_at, tables, server, history)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (log)";
    let changed = match &queue.expected {
        Expected::Any => {
            // Servers that share a tier do not move the opening: `Store::fence` does.
            let sql = format!(
                "{insert} DO UPDATE SET tables = excluded.tables, server = excluded.server, taken_by = '',
                 updated_at = excluded.updated_at"
            );
            connection.execute(&sql, params![log, first, now, tables, server, opening])
        }
        Expected::Nothing => {
            let sql =
                "INSERT INTO forebay_position (log, position, updated_at, tables, server, history, note)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (log) DO NOTHING";
            connection.execute(sql, params![log, first, now, tables, server, opening, queue.note])
        }
        Expected::At(position, history) => {
            let sql = "UPDATE forebay_position SET tables = ?2, server = ?3, history = ?4, taken_by = '',
                       updated_at = ?5 WHERE log = ?1 AND position = ?6 AND history = ?7";
            connection.execute(sql, params![log, tables, server, opening, now, stored(*position)?, history])
        }
    };
    Ok(changed.map_err(map)? == 1)
}

fn found(connection: &Connection) -> Result<Vec<StoredClaim>, Error> {
    let sql = "SELECT log, tables, server, updated_at, taken_by, pending FROM forebay_position";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let mut rows = statement.raw_query();
    let now = Timestamp::now();
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(map)? {
        let updated_at = timestamp(row, 3)?;
        found.push(StoredClaim {
            log: log_id(row, 0)?,
            tables: row.get(1).map_err(map)?,
            server: row.get(2).map_err(map)?,
            updated_at,
            age_ms: (now.0 - updated_at.0) / 1_000,
            taken_by: row.get(4).map_err(map)?,
            pending: row.get::<_, i64>(5).map_err(map)?.max(0).unsigned_abs(),
        });
    }
    Ok(found)
}

/// Replaces a log's opening by compare-and-set, in the open transaction; returns position and note.
fn move_opening(
    connection: &Connection,
    log: u128,
    before: &str,
    after: &str,
) -> Result<Option<(u64, String)>, Error> {
    let sql =
        "INSERT INTO forebay_position AS own (log, position, updated_at, history) VALUES (?1, 0, ?2, ?3)
               ON CONFLICT (log) DO UPDATE SET history = ?3 WHERE own.history = ?4 RETURNING position, note";
    let moved = connection.prepare_cached(sql).and_then(|mut statement| {
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?));
        let now = Timestamp::now().to_string();
        statement.query_row(params![log_text(log), now, after, before], row).optional()
    });
    moved.map_err(map)
}
