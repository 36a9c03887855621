//! The triggers that report which rows changed: created when they are missing, with their function replaced
//! when it differs from the wanted one, removed by `forebay unfollow`.
//!
//! What must stay true: a trigger never makes another program's statement fail, whatever happens to the
//! table's columns; other writers do not queue for long, because locks are requested with a short timeout,
//! repeatedly; when this returns, every transaction that could have written without reporting to this
//! follower has ended.
//!
//! A change is reported to all followers, unless the statement is the drain's own: the drain marks its
//! statements with `forebay.drain` (its log). The cascades of its statements run at the same trigger depth,
//! so that in a table with such a foreign key only its INSERTs count as its own.

use super::cursor::{Patience, Table, Tracked};
use super::fits::judge;
use super::look::{Look, look, old_types, sentence};
use super::shape::{self, Shape, TOLD_BY_TRIGGERS};
use super::tables;
use crate::fingerprint::fnv;
use crate::limits::FOLLOW_LOCK_PAUSE_MS;
use crate::postgres::making::{self, LOCK, may_be_made_again};
use crate::postgres::positions::log_text;
use crate::postgres::session::Session;
use crate::postgres::sql::{literal, quoted};
use crate::postgres::table::{as_read, number, text};
use crate::{Error, Follow, Kind};
use forebay_value::Value;
use std::time::Duration;

/// The triggers of one table: name, event, transition tables. Their names and definitions never change; what
/// changes between versions and configurations is in the function, which is replaced without a lock on the
/// table.
const TRIGGERS: [(&str, &str, &str); 4] = [
    ("forebay_insert", "INSERT", "REFERENCING NEW TABLE AS forebay_new"),
    ("forebay_update", "UPDATE", "REFERENCING OLD TABLE AS forebay_old NEW TABLE AS forebay_new"),
    ("forebay_delete", "DELETE", "REFERENCING OLD TABLE AS forebay_old"),
    ("forebay_truncate", "TRUNCATE", ""),
];

/// Creates or corrects the triggers of a table. `all_told`: whether every open transaction has been reporting
/// to this follower. A table that cannot be followed is returned with the reason.
pub(super) async fn make(
    session: &mut Session,
    follow: &Follow,
    all_told: bool,
    patience: Patience,
) -> Result<Tracked, Error> {
    let mut tries = 1;
    loop {
        session.begin(&patience.begin()).await?;
        let mut shape = Shape::default();
        let made = make_once(session, follow, all_told, &mut shape).await;
        match session.end(made).await {
            Ok(table) => return Ok(Tracked::followed(shape, table)),
            Err(error) if may_be_made_again(&error) && tries < patience.tries => tries += 1,
            Err(error) if patience.is_lost(session, &error) => {
                return Err(error.context(format!("cannot follow table {}", follow.schema.name)));
            }
            Err(error) => {
                let error = error.context(format!("cannot follow table {}", follow.schema.name));
                return Ok(Tracked::refused(shape, &error));
            }
        }
        tokio::time::sleep(Duration::from_millis(FOLLOW_LOCK_PAUSE_MS)).await;
    }
}

async fn make_once(
    session: &mut Session,
    follow: &Follow,
    all_told: bool,
    now: &mut Shape,
) -> Result<Table, Error> {
    // Before anything else is read: what changes meanwhile gives another shape at the next poll.
    *now = shape::of(session, TOLD_BY_TRIGGERS, follow).await?;
    let mut found = judge(session, follow).await?;
    if found.is("subscribed") {
        let why = "is filled by a subscription, which fires no statement triggers";
        return Err(Error::new(Kind::Schema, sentence(&found, follow, why)));
    }
    if !Made::new(follow, &found).is_complete(all_told) {
        session.execute(LOCK).await?;
        // Another server may have made them meanwhile.
        found = look(session, follow).await?;
    }
    let made = Made::new(follow, &found);
    if !made.missing.is_empty() && !found.is("permitted") {
        let (table, me) = (found.table(), quoted(found.text("me")));
        let message = format!(
            "the right to make triggers is missing; have it granted: GRANT TRIGGER ON {table} TO {me}"
        );
        return Err(Error::new(Kind::Schema, message));
    }
    if !made.is_complete(all_told) {
        // Waits for open transactions that have written, and blocks all other writers until this one has
        // ended.
        session.execute(&format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", found.table())).await?;
    }
    let function = make_function(session, follow, &found, &made).await?;
    let missing = made.missing;
    let is_complete = missing.is_empty();
    for (name, event, tables) in missing {
        let (table, is_there) = (found.table(), found.lists("triggers", name));
        if !is_there {
            let sql = format!(
                "CREATE TRIGGER {name} AFTER {event} ON {table} {tables} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
            );
            session.execute(&sql).await?;
        }
        if found.is("owned") || is_there {
            // Also for sessions that replay replicated changes (`session_replication_role = replica`).
            session.execute(&format!("ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")).await?;
        }
    }
    if !is_complete {
        // Under the lock, which excludes everybody who would change the triggers again.
        now.told = shape::of(session, TOLD_BY_TRIGGERS, follow).await?.told;
    }
    let key_type = follow.schema.key_column().ty.unbounded();
    Ok(Table { oid: number(&found.0, 0, 0), key_type, old_types: old_types(session, follow, &found).await? })
}

/// Creates or replaces the function of a table's triggers; returns its name.
async fn make_function(
    session: &mut Session,
    follow: &Follow,
    found: &Look,
    made: &Made,
) -> Result<String, Error> {
    let (space, name) = (found.text("function_space"), found.text("function"));
    if space.is_empty() {
        let name = new_name(session).await?;
        let name = format!("{}.{}", session.own, quoted(&format!("forebay_tell_{name}")));
        session.execute(&function_sql(&name, &made.body, &made.told)).await?;
        return Ok(name);
    }
    let is_beside = space != &*session.own;
    if is_beside && space != found.text("home") {
        let why =
            format!("has triggers of another Forebay, whose tables are in {space}, not in {}", session.own);
        return Err(Error::new(Kind::Schema, sentence(found, follow, &why)));
    }
    if !made.is_same {
        session.execute(&function_sql(name, &made.body, &made.told)).await?;
    }
    if !is_beside {
        return Ok(name.to_owned());
    }
    // An earlier version had it beside the application's functions.
    session.execute(&format!("ALTER FUNCTION {name}() SET SCHEMA {}", session.own)).await?;
    let (_, name) = name.rsplit_once('.').expect("it has a schema");
    Ok(format!("{}.{name}", session.own))
}

/// What there is of a table's triggers, and what their function is to be.
struct Made {
    missing: Vec<&'static (&'static str, &'static str, &'static str)>,
    body: String,
    /// Identifies the body.
    told: String,
    is_same: bool,
}

impl Made {
    fn new(follow: &Follow, found: &Look) -> Made {
        let missing = TRIGGERS.iter().filter(|(name, ..)| !found.lists("enabled", name)).collect();
        let body = body(follow, found);
        let told = format!("{:016x}", fnv(&body));
        let is_same = found.text("told") == told && found.text("function_space") != found.text("home");
        Made { missing, body, told, is_same }
    }

    fn is_complete(&self, all_told: bool) -> bool {
        self.missing.is_empty() && self.is_same && all_told
    }
}

async fn new_name(session: &mut Session) -> Result<String, Error> {
    let random = session.run("SELECT left(gen_random_uuid()::text, 8)", &[]).await?;
    Ok(random.values.first().map_or("", text).to_owned())
}

fn function_sql(function: &str, body: &str, told: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER \
         SET search_path = pg_catalog, pg_temp SET \"DateStyle\" = 'ISO' SET \"TimeZone\" = 'UTC' SET extra_float_digits = 1 \
         AS {};\nREVOKE ALL ON FUNCTION {function}() FROM PUBLIC;\nCOMMENT ON FUNCTION {function}() IS {}",
        literal(body),
        literal(told)
    )
}

/// The function body of a table's triggers.
fn body(follow: &Follow, found: &Look) -> String {
    let key = quoted(&follow.schema.key_column().name);
    let names: Vec<&str> = std::iter::once(follow.schema.key)
        .chain(follow.old.iter().copied())
        .map(|index| follow.schema.columns[index].name.as_str())
        .collect();
    let list = names.iter().map(|name| literal(name)).collect::<Vec<_>>().join(", ");
    let own = if follow.own || found.is("alters") {
        "false"
    } else if found.is("cascades") {
        "TG_OP = 'INSERT' AND pg_trigger_depth() = 1"
    } else {
        "pg_trigger_depth() = 1"
    };
    let old = follow.old.iter().map(|index| {
        let column = &follow.schema.columns[*index];
        let value = as_read(column.ty, &format!("o.{}", quoted(&column.name)));
        format!("{}, ({value})::text", literal(&column.name))
    });
    let old = match old.collect::<Vec<_>>() {
        pairs if pairs.is_empty() => "NULL::jsonb".to_owned(),
        pairs => format!("jsonb_build_object({})", pairs.join(", ")),
    };
    let insert = "INSERT INTO _forebay.forebay_change (relation, key, old) SELECT TG_RELID,";
    format!(
        "DECLARE
  writer text := CASE WHEN {own} THEN coalesce(current_setting('forebay.drain', true), '') ELSE '' END;
BEGIN
  -- No statement of others fails because our tables were dropped: all is read again then.
  IF to_regclass('_forebay.forebay_change') IS NULL OR to_regclass('_forebay.forebay_follower') IS NULL THEN
    RETURN NULL;
  END IF;
  -- A transaction with one snapshot for all of its statements does not see who came to follow since.
  IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') AND NOT EXISTS (
    SELECT FROM _forebay.forebay_follower WHERE updated_at > now() - interval '1 hour' AND log <> writer
  ) THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'TRUNCATE' OR (
    SELECT count(*) FROM pg_attribute WHERE attrelid = TG_RELID AND NOT attisdropped AND attname IN ({list})
  ) < (SELECT count(DISTINCT name) FROM unnest(ARRAY[{list}]::text[]) AS name) THEN
    INSERT INTO _forebay.forebay_change (relation) VALUES (TG_RELID);
  ELSIF TG_OP = 'INSERT' THEN
    {insert} n.{key}::text, NULL FROM forebay_new n;
  ELSE
    {insert} o.{key}::text, {old} FROM forebay_old o;
    IF TG_OP = 'UPDATE' THEN
      {insert} n.{key}::text, NULL FROM forebay_new n
        WHERE NOT EXISTS (SELECT FROM forebay_old o WHERE o.{key} = n.{key});
    END IF;
  END IF;
  RETURN NULL;
END"
    )
}

/// The functions of our triggers, with the names of their tables. Earlier versions had them beside the
/// application's.
const FUNCTIONS: &str = "SELECT format('%I.%I', n.nspname, p.proname), coalesce(string_agg(t.tgrelid::regclass::text, ', ' ORDER BY t.tgname) \
     FILTER (WHERE t.tgname = 'forebay_insert'), '') \
     FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace LEFT JOIN pg_trigger t ON t.tgfoid = p.oid \
     WHERE p.proname LIKE 'forebay\\_tell\\_%' AND n.nspname IN ($1, current_schema())";

/// Stops the triggers from reporting to this follower, and removes those that report to nobody.
pub(super) async fn forget(session: &mut Session, log: u128) -> Result<(), Error> {
    if !session.run(TABLES_BESIDE, &[own(session)]).await?.is_empty() {
        // With them it shows which tables nobody follows.
        tables::make(session).await?;
    }
    let there = session.run("SELECT to_regclass('_forebay.forebay_follower') IS NOT NULL", &[]).await?;
    if there.values == [Value::Bool(true)] {
        session.run("DELETE FROM _forebay.forebay_follower WHERE log = $1", &[log_text(log)]).await?;
        remove_unlisted(session).await?;
    }
    Ok(())
}

/// Removes the triggers of tables that no follower follows any more, except where others hold a lock on the
/// table all the time: the next start tries again.
pub(super) async fn remove_unlisted(session: &mut Session) -> Result<(), Error> {
    let unlisted = format!(
        "{FUNCTIONS} AND pg_has_role(p.proowner, 'USAGE') GROUP BY 1 HAVING NOT EXISTS ( \
           SELECT FROM _forebay.forebay_follower f CROSS JOIN jsonb_array_elements_text(f.tables) listed (oid) \
           WHERE listed.oid::oid = ANY (array_agg(t.tgrelid)))"
    );
    for function in session.run(&unlisted, &[own(session)]).await?.iter() {
        unless_busy(session, &format!("DROP FUNCTION IF EXISTS {}() CASCADE", text(&function[0]))).await?;
    }
    let functions = format!("SELECT EXISTS ({FUNCTIONS} AND n.nspname <> $1 GROUP BY 1)");
    if session.run(&functions, &[own(session)]).await?.values == [Value::Bool(false)] {
        for table in session.run(TABLES_BESIDE, &[own(session)]).await?.iter() {
            unless_busy(session, &format!("DROP TABLE IF EXISTS {}", text(&table[0]))).await?;
        }
    }
    Ok(())
}

/// The tables of following where an earlier version had them, if this role may drop them.
const TABLES_BESIDE: &str = "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = current_schema() AND n.nspname <> $1 AND c.relname IN ('forebay_change', 'forebay_follower') \
       AND c.relkind = 'r' AND pg_has_role(c.relowner, 'USAGE') ORDER BY 1";

fn own(session: &Session) -> Value {
    Value::Text((&*session.own).into())
}

async fn unless_busy(session: &mut Session, sql: &str) -> Result<(), Error> {
    match making::make(session, sql).await {
        Err(error) if *error.kind() != Kind::Busy => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes all objects of following; returns their names.
pub(in crate::postgres) async fn remove(session: &mut Session) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    let functions = format!("{FUNCTIONS} GROUP BY 1 ORDER BY 1");
    for function in session.run(&functions, &[own(session)]).await?.iter() {
        let (name, tables) = (text(&function[0]), text(&function[1]));
        making::make(session, &format!("DROP FUNCTION IF EXISTS {name}() CASCADE")).await?;
        removed.push(format!("the triggers of table {tables}, and their function {name}"));
    }
    let mut tables: Vec<String> = Vec::new();
    for table in ["forebay_change", "forebay_follower"] {
        let there = format!("SELECT to_regclass('_forebay.{table}') IS NOT NULL");
        if session.run(&there, &[]).await?.values == [Value::Bool(true)] {
            tables.push(format!("{}.{table}", session.own));
        }
    }
    let beside = session.run(TABLES_BESIDE, &[own(session)]).await?;
    tables.extend(beside.values.iter().map(|table| text(table).to_owned()));
    for table in tables {
        making::make(session, &format!("DROP TABLE IF EXISTS {table}")).await?;
        removed.push(format!("table {table}"));
    }
    Ok(removed)
}
