//! The triggers that tell which rows changed: made when they are missing, their function replaced when it
//! is not the one that is wanted, removed by `forebay unfollow`.
//!
//! What must stay true: a trigger never makes another program's statement fail, whatever becomes of the
//! table's columns; other writers do not queue for long, because locks are asked for with a short time-out,
//! again and again; when this returns, every transaction that could have written without telling this
//! follower has ended.
//!
//! Who is told: all followers, unless the statement is the drain's own. It says so by `forebay.drain` (its
//! log). Its statements' cascades run at the same trigger depth, so that in a table with such a foreign key
//! only its INSERTs are taken for its own.

use super::cursor::Table;
use crate::limits::{FOLLOW_LOCK_PAUSE_MS, FOLLOW_LOCK_TRIES, FOLLOW_LOCK_WAIT_MS};
use crate::postgres::session::Session;
use crate::postgres::sql::{literal, quoted};
use crate::postgres::table::{number, text};
use crate::{Error, Follow, Kind, Rows};
use forebay_value::Value;
use std::time::Duration;

/// The triggers of one table: name, event, transition tables. Their names and what they say stay as they are;
/// what changes between versions and configurations is in the function, which is replaced without a lock on
/// the table.
const TRIGGERS: [(&str, &str, &str); 4] = [
    ("forebay_insert", "INSERT", "REFERENCING NEW TABLE AS forebay_new"),
    ("forebay_update", "UPDATE", "REFERENCING OLD TABLE AS forebay_old NEW TABLE AS forebay_new"),
    ("forebay_delete", "DELETE", "REFERENCING OLD TABLE AS forebay_old"),
    ("forebay_truncate", "TRUNCATE", ""),
];

/// What the catalogue says of a table (`$1`, as in SQL), its key (`$2`) and its columns (`$3`).
///
/// `alters`: what is stored may differ from what was sent: another trigger changes rows, a rule of any table
/// writes here, or a column's type rounds, pads or puts in order.
const LOOK: &str = "
SELECT c.oid::int8 AS oid, n.nspname::text AS space, c.relname::text AS name, c.relkind::text AS kind,
  EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid) AS inherits,
  EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = c.oid) AS subscribed,
  pg_has_role(c.relowner, 'USAGE') AS owned, has_table_privilege(c.oid, 'TRIGGER') AS permitted, current_user::text AS me,
  (SELECT format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL) FROM pg_type t WHERE t.oid = a.atttypid) AS key_type,
  coalesce(a.attnotnull AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
    AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL), false) AS identifies,
  EXISTS (SELECT FROM pg_constraint f WHERE f.conrelid = c.oid AND f.contype = 'f'
    AND (f.confdeltype IN ('c', 'n', 'd') OR f.confupdtype IN ('c', 'n', 'd'))) AS cascades,
  EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgtype & 3 = 3)
    OR EXISTS (SELECT FROM pg_rewrite r JOIN pg_class o ON o.oid = r.ev_class WHERE r.ev_type <> '1' AND o.relkind IN ('r', 'p'))
    OR EXISTS (SELECT FROM pg_attribute o JOIN pg_type t ON t.oid = o.atttypid
      WHERE o.attrelid = c.oid AND o.attname IN (SELECT jsonb_array_elements_text($3::text::jsonb)) AND t.typtype <> 'e' AND NOT
        (o.atttypid IN ('bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'float8'::regtype,
           'text'::regtype, 'varchar'::regtype, 'uuid'::regtype, 'json'::regtype, 'bytea'::regtype)
         OR o.atttypid IN ('numeric'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype) AND o.atttypmod = -1)) AS alters,
  (SELECT coalesce(string_agg(t.tgname, ' '), '') FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'A')) AS enabled,
  (SELECT coalesce(string_agg(t.tgname, ' '), '') FROM pg_trigger t WHERE t.tgrelid = c.oid) AS triggers,
  f.name AS function, f.told AS told
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2 AND NOT a.attisdropped
LEFT JOIN LATERAL (SELECT format('%I.%I', s.nspname, p.proname) AS name, obj_description(p.oid, 'pg_proc') AS told
  FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace s ON s.oid = p.pronamespace
  WHERE t.tgrelid = c.oid AND t.tgname LIKE 'forebay\\_%' ORDER BY t.tgname LIMIT 1) f ON true
WHERE c.oid = to_regclass($1)";

/// The row of [`LOOK`], by name.
struct Look(Rows);

impl Look {
    fn value(&self, name: &str) -> &Value {
        let index = self.0.columns.iter().position(|column| column.name == name);
        &self.0.values[index.expect("it is in the statement")]
    }

    fn is(&self, name: &str) -> bool {
        *self.value(name) == Value::Bool(true)
    }

    fn text(&self, name: &str) -> &str {
        text(self.value(name))
    }

    fn lists(&self, name: &str, item: &str) -> bool {
        self.text(name).split(' ').any(|listed| listed == item)
    }

    /// The table as SQL, whatever the search path.
    fn table(&self) -> String {
        format!("{}.{}", quoted(self.text("space")), quoted(self.text("name")))
    }
}

async fn look(session: &mut Session, follow: &Follow) -> Result<Look, Error> {
    let schema = &follow.schema;
    let columns: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
    let columns = serde_json::to_string(&columns).expect("texts are JSON");
    let key = schema.key_column().name.as_str();
    let params = [quoted(&schema.name), key.into(), columns].map(|text| Value::Text(text.into()));
    let found = session.run(LOOK, &params).await?;
    if found.is_empty() {
        return Err(Error::new(
            Kind::Schema,
            format!("table {} is not there, and cannot be followed", schema.name),
        ));
    }
    Ok(Look(found))
}

/// Why a table cannot be followed, in a sentence that says what to do.
fn refused(look: &Look, follow: &Follow) -> Option<String> {
    let (table, key) = (look.table(), &follow.schema.key_column().name);
    let why = match look.text("kind") {
        "r" if look.is("inherits") => "is a partition, or other tables inherit from it".into(),
        "r" if look.is("subscribed") => {
            "is filled by a subscription, which fires no statement triggers".into()
        }
        "r" if !look.is("identifies") => {
            format!("has no PRIMARY KEY, and no UNIQUE constraint with NOT NULL, on its key {key} alone")
        }
        "r" if !["smallint", "integer", "bigint", "uuid", "text", "character varying"]
            .contains(&look.text("key_type")) =>
        {
            format!(
                "has a key of type {}; bigint, integer, smallint, uuid, text or varchar is needed",
                look.text("key_type")
            )
        }
        "r" => return None,
        "p" => "is partitioned".into(),
        "v" | "m" => "is a view".into(),
        _ => "is no ordinary table".into(),
    };
    Some(format!(
        "table {} cannot be followed: {table} {why}; with `follow = false` it is served, but not told what others write",
        follow.schema.name
    ))
}

/// Has the triggers of a table there as they must be. `all_told`: whether every transaction that is open now
/// has been telling this follower.
pub(super) async fn make(
    session: &mut Session,
    home: &str,
    follow: &Follow,
    all_told: bool,
) -> Result<Table, Error> {
    let mut tries = 1;
    loop {
        session.begin(&format!("BEGIN; SET LOCAL lock_timeout = {FOLLOW_LOCK_WAIT_MS}")).await?;
        let made = make_once(session, home, follow, all_told).await;
        match session.end(made).await {
            Err(error) if *error.kind() == Kind::Busy && tries < FOLLOW_LOCK_TRIES => tries += 1,
            Err(error) => return Err(error.context(format!("cannot follow table {}", follow.schema.name))),
            Ok(table) => return Ok(table),
        }
        tokio::time::sleep(Duration::from_millis(FOLLOW_LOCK_PAUSE_MS)).await;
    }
}

async fn make_once(
    session: &mut Session,
    home: &str,
    follow: &Follow,
    all_told: bool,
) -> Result<Table, Error> {
    let found = look(session, follow).await?;
    if let Some(why) = refused(&found, follow) {
        return Err(Error::new(Kind::Schema, why));
    }
    let missing: Vec<_> = TRIGGERS.iter().filter(|(name, ..)| !found.lists("enabled", name)).collect();
    let body = body(home, follow, &found);
    let told = format!("{:016x}", fnv(&body));
    let is_same = found.text("told") == told;
    if !missing.is_empty() && !found.is("permitted") {
        let (table, me) = (found.table(), quoted(found.text("me")));
        let message = format!(
            "the right to make triggers is missing; have it granted: GRANT TRIGGER ON {table} TO {me}"
        );
        return Err(Error::new(Kind::Schema, message));
    }
    if !missing.is_empty() || !is_same || !all_told {
        // Waits for open transactions that have written, and lets no other write until this one has ended.
        session.execute(&format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", found.table())).await?;
    }
    let function = match found.text("function") {
        "" => format!("{home}.{}", quoted(&format!("forebay_tell_{}", new_name(session).await?))),
        function => function.to_owned(),
    };
    if !is_same {
        session.execute(&function_sql(&function, &body, &told)).await?;
    }
    for (name, event, tables) in missing {
        let (table, is_there) = (found.table(), found.lists("triggers", name));
        if !is_there {
            let sql = format!(
                "CREATE TRIGGER {name} AFTER {event} ON {table} {tables} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
            );
            session.execute(&sql).await?;
        }
        if found.is("owned") || is_there {
            // Also for sessions that replay what others wrote (`session_replication_role = replica`).
            session.execute(&format!("ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")).await?;
        }
    }
    let key_type = follow.schema.key_column().ty.unbounded();
    Ok(Table { oid: number(&found.0, 0, 0), key_type, old_types: old_types(session, follow, &found).await? })
}

async fn new_name(session: &mut Session) -> Result<String, Error> {
    let random = session.run("SELECT left(gen_random_uuid()::text, 8)", &[]).await?;
    Ok(random.values.first().map_or("", text).to_owned())
}

/// The types of the columns whose previous values are told.
async fn old_types(session: &mut Session, follow: &Follow, found: &Look) -> Result<Vec<String>, Error> {
    let mut types = Vec::with_capacity(follow.old.len());
    for &column in &follow.old {
        let name = &follow.schema.columns[column].name;
        let sql = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = $1::int8::oid AND attname = $2";
        let params = [found.value("oid").clone(), Value::Text(name.as_str().into())];
        match session.run(sql, &params).await?.values.first() {
            Some(ty) => types.push(text(ty).to_owned()),
            None => return Err(Error::new(Kind::Schema, format!("it has no column {name}"))),
        }
    }
    Ok(types)
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

/// What the triggers of a table do.
fn body(home: &str, follow: &Follow, found: &Look) -> String {
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
    let old = match &names[1..] {
        [] => "NULL::jsonb".to_owned(),
        names => {
            let pairs = names.iter().map(|name| format!("{}, o.{}::text", literal(name), quoted(name)));
            format!("jsonb_build_object({})", pairs.collect::<Vec<_>>().join(", "))
        }
    };
    let insert = format!("INSERT INTO {home}.forebay_change (relation, key, old) SELECT TG_RELID,");
    format!(
        "DECLARE
  writer text := CASE WHEN {own} THEN coalesce(current_setting('forebay.drain', true), '') ELSE '' END;
BEGIN
  -- A transaction with one snapshot for all of its statements does not see who came to follow since.
  IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') AND NOT EXISTS (
    SELECT FROM {home}.forebay_follower WHERE updated_at > now() - interval '1 hour' AND log <> writer
  ) THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'TRUNCATE' OR (
    SELECT count(*) FROM pg_attribute WHERE attrelid = TG_RELID AND NOT attisdropped AND attname IN ({list})
  ) < (SELECT count(DISTINCT name) FROM unnest(ARRAY[{list}]::text[]) AS name) THEN
    INSERT INTO {home}.forebay_change (relation) VALUES (TG_RELID);
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

/// FNV-1a: names a text, the same in every version.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Removes everything that following has made; what that was.
pub(in crate::postgres) async fn remove(session: &mut Session) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    let functions = "SELECT format('%I.%I', n.nspname, p.proname), coalesce(string_agg(t.tgrelid::regclass::text, ', ' ORDER BY t.tgname) \
         FILTER (WHERE t.tgname = 'forebay_insert'), '') \
         FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace LEFT JOIN pg_trigger t ON t.tgfoid = p.oid \
         WHERE p.proname LIKE 'forebay\\_tell\\_%' GROUP BY 1 ORDER BY 1";
    for function in session.run(functions, &[]).await?.iter() {
        let (name, tables) = (text(&function[0]), text(&function[1]));
        patiently(session, &format!("DROP FUNCTION {name}() CASCADE")).await?;
        removed.push(format!("the triggers of table {tables}, and their function {name}"));
    }
    for table in ["forebay_change", "forebay_follower"] {
        let there = session.run("SELECT to_regclass($1) IS NOT NULL", &[Value::Text(table.into())]).await?;
        if there.values == [Value::Bool(true)] {
            patiently(session, &format!("DROP TABLE {table}")).await?;
            removed.push(format!("table {table}"));
        }
    }
    Ok(removed)
}

/// Runs a statement that waits for locks, so that other writers do not queue behind it for long.
async fn patiently(session: &mut Session, sql: &str) -> Result<(), Error> {
    let mut tries = 1;
    loop {
        session.begin(&format!("BEGIN; SET LOCAL lock_timeout = {FOLLOW_LOCK_WAIT_MS}")).await?;
        let done = session.execute(sql).await;
        match session.end(done).await {
            Err(error) if *error.kind() == Kind::Busy && tries < FOLLOW_LOCK_TRIES => tries += 1,
            ended => return ended,
        }
        tokio::time::sleep(Duration::from_millis(FOLLOW_LOCK_PAUSE_MS)).await;
    }
}
