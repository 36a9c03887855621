//! Claims on tables, beside the positions: see `crate::claim`.

use super::drain_tables::LOCK;
use super::positions::{integer, log_id, log_text, time};
use super::session::Session;
use super::table::text;
use super::{Bulk, Postgres};
use crate::claim::{Claim, Claimed, ClaimedQueue, Expected, GIVE_BACK, StoredClaim, plan};
use crate::limits::CLAIM_MS;
use crate::{Error, Kind};
use forebay_value::Value;
use std::sync::atomic::Ordering;

impl Postgres {
    pub(crate) async fn claim(&self, claim: Claim) -> Result<Claimed, Error> {
        self.job(|bulk| async move {
            let claimed = claim_tables(&bulk, &claim).await;
            if claimed.is_err() {
                // Another client may have dropped the drain's own tables.
                bulk.has_drain_tables.store(false, Ordering::Relaxed);
            }
            claimed
        })
        .await
    }

    pub(crate) async fn release_claim(&self, log: u128, opening: &str) -> Result<(), Error> {
        let opening = Value::Text(opening.into());
        self.job(|bulk| async move {
            bulk.sessions.lease().await?.run(GIVE_BACK, &[log_text(log), opening]).await.map(drop)
        })
        .await
    }
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
    let found = found(session).await?;
    let plan = match plan(claim, &found) {
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
            let sql = format!("{insert} DO NOTHING");
            session.run(&sql, &[log, number(queue.first)?, tables, server, opening]).await?
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

async fn found(session: &mut Session) -> Result<Vec<StoredClaim>, Error> {
    let sql = "SELECT log, tables, server, updated_at, taken_by,
               (extract(epoch FROM clock_timestamp() - updated_at) * 1000)::int8 FROM forebay_position";
    let rows = session.run(sql, &[]).await?;
    let found = |row: &[Value]| {
        Ok(StoredClaim {
            log: log_id(&row[0])?,
            tables: text(&row[1]).into(),
            server: text(&row[2]).into(),
            updated_at: time(&row[3]),
            taken_by: text(&row[4]).into(),
            age_ms: integer(&row[5]),
        })
    };
    rows.iter().map(found).collect()
}
