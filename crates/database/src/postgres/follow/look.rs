//! What the catalogue says about a table that is to be followed, and whether it can be followed.

use crate::postgres::session::Session;
use crate::postgres::sql::quoted;
use crate::postgres::table::text;
use crate::{Error, Follow, Kind, Rows};
use forebay_value::Value;

/// What the catalogue says about a table (`$1`, as in SQL), its key (`$2`) and its columns (`$3`).
///
/// `alters`: the stored values may differ from those sent: another trigger changes rows, a rule of any table
/// writes here, or a column's type rounds, pads or sorts its values.
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
  EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgtype & 3 = 3 AND t.tgenabled <> 'D')
    OR EXISTS (SELECT FROM pg_rewrite r JOIN pg_class o ON o.oid = r.ev_class WHERE r.ev_type <> '1' AND o.relkind IN ('r', 'p'))
    OR EXISTS (SELECT FROM pg_attribute o JOIN pg_type t ON t.oid = o.atttypid
      WHERE o.attrelid = c.oid AND o.attname IN (SELECT jsonb_array_elements_text($3::text::jsonb)) AND t.typtype <> 'e' AND NOT
        (o.atttypid IN ('bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'float8'::regtype,
           'text'::regtype, 'varchar'::regtype, 'uuid'::regtype, 'json'::regtype, 'bytea'::regtype)
         OR o.atttypid IN ('numeric'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype) AND o.atttypmod = -1)) AS alters,
  (SELECT coalesce(string_agg(t.tgname, ' '), '') FROM pg_trigger t WHERE t.tgrelid = c.oid AND (t.tgenabled = 'A' OR t.tgenabled = 'O' AND NOT pg_has_role(c.relowner, 'USAGE'))) AS enabled,
  (SELECT coalesce(string_agg(t.tgname, ' '), '') FROM pg_trigger t WHERE t.tgrelid = c.oid) AS triggers,
  c.relpages::int8 * current_setting('block_size')::int8 AS bytes,
  f.name AS function, f.space AS function_space, f.told AS told, CASE WHEN current_schema() ~ '^_forebay' THEN '' ELSE current_schema()::text END AS home, c.relpersistence::text AS persistence, c.relreplident::text AS identity,
  coalesce((SELECT jsonb_agg(o.attname)::text FROM pg_attribute o WHERE o.attrelid = c.oid AND o.attnum > 0 AND NOT o.attisdropped
    AND (c.relreplident = 'f' OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND o.attnum = ANY (i.indkey)
      AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident)))), '[]') AS identifying
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2 AND NOT a.attisdropped
LEFT JOIN LATERAL (SELECT format('%I.%I', s.nspname, p.proname) AS name, s.nspname::text AS space, obj_description(p.oid, 'pg_proc') AS told
  FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace s ON s.oid = p.pronamespace
  WHERE t.tgrelid = c.oid AND t.tgname LIKE 'forebay\\_%' ORDER BY t.tgname LIMIT 1) f ON true
WHERE c.oid = to_regclass($1)";

/// The row of [`LOOK`], by column name.
pub(super) struct Look(pub(super) Rows);

impl Look {
    pub(super) fn value(&self, name: &str) -> &Value {
        let index = self.0.columns.iter().position(|column| column.name == name);
        &self.0.values[index.expect("it is in the statement")]
    }

    pub(super) fn is(&self, name: &str) -> bool {
        *self.value(name) == Value::Bool(true)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        text(self.value(name))
    }

    pub(super) fn lists(&self, name: &str, item: &str) -> bool {
        self.text(name).split(' ').any(|listed| listed == item)
    }

    /// The table's name in SQL, independent of the search path.
    pub(super) fn table(&self) -> String {
        format!("{}.{}", quoted(self.text("space")), quoted(self.text("name")))
    }
}

pub(super) async fn look(session: &mut Session, follow: &Follow) -> Result<Look, Error> {
    let schema = &follow.schema;
    let columns: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
    let columns = serde_json::to_string(&columns).expect("texts are JSON");
    let key = schema.key_column().name.as_str();
    let params = [quoted(&schema.name), key.into(), columns].map(|text| Value::Text(text.into()));
    let found = session.run(LOOK, &params).await?;
    if found.is_empty() {
        return Err(Error::new(
            Kind::Schema,
            format!("table {} is not in the database, or not in the search path", schema.name),
        ));
    }
    Ok(Look(found))
}

/// Why a table cannot be followed, in a sentence that says what to do.
pub(super) fn refused(look: &Look, follow: &Follow) -> Option<String> {
    let key = &follow.schema.key_column().name;
    let why: String = match look.text("kind") {
        "r" if look.is("inherits") => "is a partition, or other tables inherit from it".into(),
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
    Some(sentence(look, follow, &why))
}

/// Why a table cannot be followed, and what to do.
pub(super) fn sentence(look: &Look, follow: &Follow, why: &str) -> String {
    format!(
        "table {} cannot be followed: {} {why}; with `follow = false` it is served without other writers' changes",
        follow.schema.name,
        look.table()
    )
}

/// Why a table's changes cannot be reported by logical decoding.
pub(super) fn undecodable(found: &Look, follow: &Follow) -> Option<String> {
    let (table, key) = (found.table(), follow.schema.key_column().name.as_str());
    if found.text("persistence") != "p" {
        return Some(format!("{table} is not logged"));
    }
    let identifying: Vec<String> = serde_json::from_str(found.text("identifying")).unwrap_or_default();
    if !identifying.iter().any(|name| name == key) {
        return Some(format!(
            "needs {key} in what identifies a row: ALTER TABLE {table} REPLICA IDENTITY FULL, or USING INDEX"
        ));
    }
    (!follow.old.is_empty() && found.text("identity") != "f")
        .then(|| format!("cached answers need previous values: ALTER TABLE {table} REPLICA IDENTITY FULL"))
}

/// The types of the columns whose previous values are reported.
pub(super) async fn old_types(
    session: &mut Session,
    follow: &Follow,
    found: &Look,
) -> Result<Vec<String>, Error> {
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
