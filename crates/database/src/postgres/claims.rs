//! Claims on tables, beside the positions: see `crate::claim`.

use super::drain_tables::LOCK;
use super::positions::{integer, log_id, log_text, time};
use super::session::Session;
use super::table::text;
use super::{Bulk, Postgres};
use crate::claim::{Claim, Claimed, ClaimedQueue, Expected, GIVE_BACK, SET_PENDING, StoredClaim, plan};
use crate::limits::CLAIM_MS;
use crate::{Error, Kind};
use forebay_value::Value;
use std::sync::atomic::Ordering;

impl Postgres {
    pub(crate) async fn claim(&self, claim: Claim) -> Result<Claimed, Error> {
        self.job(|bulk| async move {
            if claim.queues.iter().any(|queue| queue.expected == Expected::Nothing) {
                // A position that was lost may have been lost with its table.
                bulk.has_drain_tables.store(false, Ordering::Relaxed);
            }
            let claimed = claim_tables(&bulk, &claim).await;
            if claimed.is_err() {
                // Another client may have dropped the drain's own tables.
                bulk.has_drain_tables.store(false, Ordering::Relaxed);
            }
            claimed
        })
        .await
    }

    pub(crate) async fn release_claim(&self, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        self.set(GIVE_BACK, log, opening, pending).await
    }

    pub(crate) async fn set_pending(&self, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        self.set(SET_PENDING, log, opening, pending).await
    }

    async fn set(&self, sql: &'static str, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        let values = [Value::Bigint(stored(pending)), log_text(log), Value::Text(opening.into())];
        self.job(|bulk| async move { bulk.sessions.lease().await?.run(sql, &values).await.map(drop) }).await
    }

    /// See [`Store::has_known`](crate::Store::has_known).
    pub(crate) async fn has_known(&self, log: u128) -> Result<bool, Error> {
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease().await?;
            let there = session.run("SELECT to_regclass('forebay_log') IS NOT NULL", &[]).await?;
            if there.values != [Value::Bool(true)] {
                return Ok(false);
            }
            let sql = "SELECT EXISTS (SELECT FROM forebay_log WHERE log = $1 AND server = $2)";
            let server = this_database(&mut session).await?;
            Ok(session.run(sql, &[log_text(log), server]).await?.values == [Value::Bool(true)])
        })
        .await
    }
}

/// This database of this server: a copy of the database is another one. Where a role may not read which
/// server it is, only the database is named.
async fn this_database(session: &mut Session) -> Result<Value, Error> {
    let may = session.run("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')", &[]).await?;
    let server = match may.values == [Value::Bool(true)] {
        true => "(SELECT system_identifier::text FROM pg_control_system())",
        false => "''",
    };
    let sql = format!("SELECT {server} || '/' || oid FROM pg_database WHERE datname = current_database()");
    Ok(session.run(&sql, &[]).await?.values[0].clone())
}

/// What is stored of a number of changes.
fn stored(pending: u64) -> i64 {
    i64::try_from(pending).unwrap_or(i64::MAX)
}

async fn claim_tables(bulk: &Bulk, claim: &Claim) -> Result<Claimed, Error> {
    let mut session = bulk.sessions.lease().await?;
    let session = &mut *session;
    bulk.make_drain_tables(session).await?;
    session.begin_job().await?;
    match claimed(session, claim).await {
        Ok(Claimed::Done) => session.commit().await.map(|()| Claimed::Done),
        Ok(refused) => {
            session.rollback().await;
            Ok(refused)
        }
        Err(error) => session.end(Err(error)).await,
    }
}

/// Makes the claim in the open transaction.
async fn claimed(session: &mut Session, claim: &Claim) -> Result<Claimed, Error> {
    session.execute(LOCK).await?;
    let this = this_database(session).await?;
    let plan = match plan(claim, &found(session, &this).await?) {
        Ok(plan) => plan,
        Err(refused) => return Ok(refused),
    };
    let by = claim.queues.first().map_or_else(|| Value::Text("".into()), |queue| log_text(queue.log));
    for holder in plan.taken {
        // The statement waits for a running batch of that log, which then updates the time.
        let sql = "UPDATE forebay_position SET tables = '', taken_by = $2
                   WHERE log = $1 AND updated_at < clock_timestamp() - $3::int8 * interval '1 millisecond'";
        let params = [log_text(holder.log), by.clone(), Value::Bigint(CLAIM_MS.cast_signed())];
        if session.run(sql, &params).await?.changed != 1 {
            return Ok(Claimed::Held(holder));
        }
    }
    for log in plan.given_back {
        let sql = "UPDATE forebay_position SET tables = '', taken_by = $2 WHERE log = $1";
        session.run(sql, &[log_text(log), by.clone()]).await?;
    }
    let texts = [&plan.tables, &claim.server, &claim.opening].map(|text| Value::Text(text.as_str().into()));
    for queue in &plan.own {
        if !claim_queue(session, queue, &texts).await? {
            return Ok(Claimed::Moved);
        }
        if let Some(pending) = claim.pending {
            let sql = "UPDATE forebay_position SET pending = $2 WHERE log = $1";
            session.run(sql, &[log_text(queue.log), Value::Bigint(stored(pending))]).await?;
        }
        let sql = "INSERT INTO forebay_log AS own (log, server) VALUES ($1, $2)
                   ON CONFLICT (log) DO UPDATE SET server = excluded.server WHERE own.server <> excluded.server";
        session.run(sql, &[log_text(queue.log), this.clone()]).await?;
    }
    Ok(Claimed::Done)
}

/// Claims one queue; false when the database has another state for it than was expected.
async fn claim_queue(session: &mut Session, queue: &ClaimedQueue, texts: &[Value; 3]) -> Result<bool, Error> {
    let [tables, server, opening] = texts.clone();
    let number = |position: u64| {
        i64::try_from(position)
            .map(Value::Bigint)
            .map_err(|_| Error::new(Kind::Type, format!("position {position} is past 63 bits")))
    };
    let log = log_text(queue.log);
    let insert = "INSERT INTO forebay_position AS own (log, position, updated_at, tables, server, history)
         VALUES ($1, $2, clock_timestamp(), $3, $4, $5) ON CONFLICT (log)";
    // Servers that share a tier do not move the opening: `Store::fence` does.
    let set = "UPDATE SET tables = excluded.tables, server = excluded.server, taken_by = '',
               updated_at = clock_timestamp()";
    let changed = match &queue.expected {
        Expected::Any => {
            let sql = format!("{insert} DO {set}");
            session.run(&sql, &[log, number(queue.first)?, tables, server, opening]).await?
        }
        Expected::Nothing => {
            let sql =
                "INSERT INTO forebay_position (log, position, updated_at, tables, server, history, note)
                       VALUES ($1, $2, clock_timestamp(), $3, $4, $5, $6) ON CONFLICT (log) DO NOTHING";
            let note = Value::Text(queue.note.as_str().into());
            session.run(sql, &[log, number(queue.first)?, tables, server, opening, note]).await?
        }
        Expected::At(position, history) => {
            let sql = "UPDATE forebay_position SET tables = $2, server = $3, history = $4, taken_by = '',
                       updated_at = clock_timestamp() WHERE log = $1 AND position = $5 AND history = $6";
            let history = Value::Text(history.as_str().into());
            session.run(sql, &[log, tables, server, opening, number(*position)?, history]).await?
        }
    };
    Ok(changed.changed == 1)
}

async fn found(session: &mut Session, this: &Value) -> Result<Vec<StoredClaim>, Error> {
    // In a copy of a database nothing is pending: what the original lacks goes there.
    let sql = "SELECT log, tables, server, updated_at, taken_by,
               (extract(epoch FROM clock_timestamp() - updated_at) * 1000)::int8,
               CASE WHEN EXISTS (SELECT FROM forebay_log own WHERE own.log = stored.log AND own.server = $1) THEN pending ELSE 0 END
               FROM forebay_position stored";
    let rows = session.run(sql, std::slice::from_ref(this)).await?;
    let found = |row: &[Value]| {
        Ok(StoredClaim {
            log: log_id(&row[0])?,
            tables: text(&row[1]).into(),
            server: text(&row[2]).into(),
            updated_at: time(&row[3]),
            taken_by: text(&row[4]).into(),
            age_ms: integer(&row[5]),
            pending: integer(&row[6]).max(0).unsigned_abs(),
        })
    };
    rows.iter().map(found).collect()
}
