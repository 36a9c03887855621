//! Claims on tables, beside the positions: see `crate::claim`.
//!
//! A server with another search path, or another `own_schema`, has another schema of ours, but perhaps the
//! same tables: `relations` has the oids of those in `tables`, in their order, and a claim regards what every
//! schema of ours has of the same oids.

use super::making::LOCK;
use super::positions::{integer, log_id, log_text, time};
use super::session::Session;
use super::sql::quoted;
use super::table::text;
use super::{Bulk, Postgres};
use crate::claim::{Claim, Claimed, ClaimedQueue, Expected, GIVE_BACK, SET_PENDING, StoredClaim, plan};
use crate::limits::CLAIM_MS;
use crate::{Error, Kind};
use forebay_value::Value;
use std::collections::HashMap;
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

    async fn set(&self, set: &str, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        let sql = format!("UPDATE _forebay.forebay_position {set}");
        let values = [Value::Bigint(stored(pending)), log_text(log), Value::Text(opening.into())];
        self.job(|bulk| async move { bulk.sessions.lease().await?.run(&sql, &values).await.map(drop) }).await
    }

    /// See [`Store::has_known`](crate::Store::has_known).
    pub(crate) async fn has_known(&self, log: u128) -> Result<bool, Error> {
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease().await?;
            let server = this_database(&mut session).await?;
            let there = session.run("SELECT to_regclass('_forebay.forebay_log') IS NOT NULL", &[]).await?;
            let sql = "SELECT EXISTS (SELECT FROM _forebay.forebay_log WHERE log = $1 AND server = $2)";
            if there.values == [Value::Bool(true)]
                && session.run(sql, &[log_text(log), server.clone()]).await?.values == [Value::Bool(true)]
            {
                return Ok(true);
            }
            let elsewhere = elsewhere(&mut session, &server, "").await?;
            match elsewhere.iter().find(|(_, claim)| claim.log == log) {
                Some((schema, _)) => Err(is_elsewhere(&session, log, schema)),
                None => Ok(false),
            }
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
    let mut all = found(session, &this).await?;
    let elsewhere = elsewhere(session, &this, &claim.tables.join(",")).await?;
    let is_own = |claimed: &StoredClaim| claim.queues.iter().any(|queue| queue.log == claimed.log);
    if let Some((schema, own)) = elsewhere.iter().find(|(_, claimed)| is_own(claimed)) {
        return Err(is_elsewhere(session, own.log, schema));
    }
    let schemas: HashMap<u128, String> =
        elsewhere.iter().map(|(schema, claimed)| (claimed.log, schema.clone())).collect();
    // Our statements name our schema like this.
    let table = |log: &u128| match schemas.get(log) {
        Some(schema) => format!("{}.forebay_position", quoted(schema)),
        None => "_forebay.forebay_position".to_owned(),
    };
    all.extend(elsewhere.into_iter().map(|(_, claimed)| claimed));
    let plan = match plan(claim, &all) {
        Ok(plan) => plan,
        Err(refused) => return Ok(refused),
    };
    let by = claim.queues.first().map_or_else(|| Value::Text("".into()), |queue| log_text(queue.log));
    for holder in plan.taken {
        // The statement waits for a running batch of that log, which then updates the time.
        let sql = format!(
            "UPDATE {} SET tables = '', taken_by = $2
             WHERE log = $1 AND updated_at < clock_timestamp() - $3::int8 * interval '1 millisecond'",
            table(&holder.log)
        );
        let params = [log_text(holder.log), by.clone(), Value::Bigint(CLAIM_MS.cast_signed())];
        if session.run(&sql, &params).await?.changed != 1 {
            return Ok(Claimed::Held(holder));
        }
    }
    for log in plan.given_back {
        let sql = format!("UPDATE {} SET tables = '', taken_by = $2 WHERE log = $1", table(&log));
        session.run(&sql, &[log_text(log), by.clone()]).await?;
    }
    let texts = [&plan.tables, &claim.server, &claim.opening].map(|text| Value::Text(text.as_str().into()));
    for queue in &plan.own {
        if !claim_queue(session, queue, &texts).await? {
            return Ok(Claimed::Moved);
        }
        let sql = format!(
            "UPDATE _forebay.forebay_position SET relations = {RELATIONS} WHERE log = $1 AND relations <> {RELATIONS}"
        );
        session.run(&sql, &[log_text(queue.log), texts[0].clone()]).await?;
        if let Some(pending) = claim.pending {
            let sql = "UPDATE _forebay.forebay_position SET pending = $2 WHERE log = $1";
            session.run(sql, &[log_text(queue.log), Value::Bigint(stored(pending))]).await?;
        }
        let sql = "INSERT INTO _forebay.forebay_log AS own (log, server) VALUES ($1, $2)
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
    let insert =
        "INSERT INTO _forebay.forebay_position AS own (log, position, updated_at, tables, server, history)
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
                "INSERT INTO _forebay.forebay_position (log, position, updated_at, tables, server, history, note)
                       VALUES ($1, $2, clock_timestamp(), $3, $4, $5, $6) ON CONFLICT (log) DO NOTHING";
            let note = Value::Text(queue.note.as_str().into());
            session.run(sql, &[log, number(queue.first)?, tables, server, opening, note]).await?
        }
        Expected::At(position, history) => {
            let sql =
                "UPDATE _forebay.forebay_position SET tables = $2, server = $3, history = $4, taken_by = '',
                       updated_at = clock_timestamp() WHERE log = $1 AND position = $5 AND history = $6";
            let history = Value::Text(history.as_str().into());
            session.run(sql, &[log, tables, server, opening, number(*position)?, history]).await?
        }
    };
    Ok(changed.changed == 1)
}

/// The oids of the tables that `$2` names; `-` instead of one that is not there.
const RELATIONS: &str = "(SELECT coalesce(string_agg(coalesce(to_regclass(quote_ident(name))::oid::text, '-'), ',' ORDER BY place), '') \
     FROM unnest(string_to_array($2::text, ',')) WITH ORDINALITY AS named (name, place))";

async fn found(session: &mut Session, this: &Value) -> Result<Vec<StoredClaim>, Error> {
    let sql = format!("SELECT {} FROM _forebay.forebay_position stored", columns("tables", "_forebay"));
    session.run(&sql, std::slice::from_ref(this)).await?.iter().map(claim_of).collect()
}

/// What other schemas of ours, of this database, have of these tables, and those schemas' names: the claims
/// on other tables are there without tables. A schema that this role may not read is another application's.
async fn elsewhere(
    session: &mut Session,
    this: &Value,
    tables: &str,
) -> Result<Vec<(String, StoredClaim)>, Error> {
    let schemas = "SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relname = 'forebay_position' AND n.nspname <> $1 AND n.nspname <> 'public' \
           AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') \
           AND has_table_privilege(to_regclass(quote_ident(n.nspname) || '.forebay_log')::oid, 'SELECT') \
           AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'relations')";
    let own = Value::Text((&*session.own).into());
    let mut claims = Vec::new();
    for schema in session.run(schemas, &[own]).await?.iter() {
        let schema = text(&schema[0]);
        let same = format!(
            "coalesce((SELECT string_agg(claimed.name, ',') \
               FROM unnest(string_to_array(tables, ','), string_to_array(relations, ',')) AS claimed (name, oid) \
               WHERE claimed.oid = ANY (string_to_array({RELATIONS}, ',')) AND claimed.oid <> '-'), '')"
        );
        let (own, columns) = (quoted(schema), columns(&same, &quoted(schema)));
        let sql = format!(
            "SELECT {columns} FROM {own}.forebay_position stored \
             WHERE EXISTS (SELECT FROM {own}.forebay_log own WHERE own.log = stored.log AND own.server = $1)"
        );
        let found = session.run(&sql, &[this.clone(), Value::Text(tables.into())]).await?;
        for row in found.iter() {
            claims.push((schema.to_owned(), claim_of(row)?));
        }
    }
    Ok(claims)
}

/// What [`claim_of`] reads. In a copy of a database nothing is pending: what the original lacks goes there.
fn columns(tables: &str, schema: &str) -> String {
    format!(
        "log, {tables}, server, updated_at, taken_by,
         (extract(epoch FROM clock_timestamp() - updated_at) * 1000)::int8,
         CASE WHEN EXISTS (SELECT FROM {schema}.forebay_log own WHERE own.log = stored.log AND own.server = $1) THEN pending ELSE 0 END"
    )
}

fn claim_of(row: &[Value]) -> Result<StoredClaim, Error> {
    Ok(StoredClaim {
        log: log_id(&row[0])?,
        tables: text(&row[1]).into(),
        server: text(&row[2]).into(),
        updated_at: time(&row[3]),
        taken_by: text(&row[4]).into(),
        age_ms: integer(&row[5]),
        pending: integer(&row[6]).max(0).unsigned_abs(),
    })
}

fn is_elsewhere(session: &Session, log: u128, schema: &str) -> Error {
    let own = &session.own;
    let message = format!(
        "the position of log {log:032x} is in the schema {schema} of this database, and the search path or own_schema now \
         says that the tables of Forebay are in {own}: what was drained would be drained a second time. Say \
         own_schema={schema} in the URL, or put back the search path"
    );
    Error::new(Kind::Schema, message)
}
