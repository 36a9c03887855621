//! The shape of a table: everything in the catalogue that gives its values their meaning, as one short text
//! for each followed table. It is read in the snapshot of each poll, without a lock on any table, and stored
//! with a follower's place: a table whose shape differs is looked at again, and its rows are read again.
//!
//! ```text
//! shape := oid ' ' told ' ' means ' ' rules
//! told  := whether and how its changes are reported       another: reports may be missing
//! means := hash of file, columns, types, enum labels, domains, partitions, triggers and rules of others
//! rules := hash of NOT NULL, defaults, indexes, constraints       another: only the rules are read again
//! ```
//! Expressions are hashed as the catalogue stores them: the functions that print them lock the table.

use crate::postgres::session::Session;
use crate::{Error, Follow, Kind};
use forebay_value::Value;

/// The shape of one table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// 0: there is no such table.
    pub(super) oid: i64,
    pub(super) told: String,
    pub(super) means: String,
    pub(super) rules: String,
}

/// How the two ways of following express [`Shape::told`] of a table `f`. A slot reports a table by its name:
/// the rows of the catalogue that hold it are others once it, or its schema, was renamed, also when the old
/// name is back.
pub(super) const TOLD_BY_SLOT: &str = "concat_ws('/', f.relreplident, \
     (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = f.oid AND (f.relreplident = 'd' AND i.indisprimary OR f.relreplident = 'i' AND i.indisreplident)), \
     f.named, f.spaced)";
/// See [`TOLD_BY_SLOT`].
pub(super) const TOLD_BY_TRIGGERS: &str = "coalesce((SELECT string_agg(concat(t.tgname, t.oid, t.tgenabled), '/' ORDER BY t.tgname) \
     FROM pg_trigger t WHERE t.tgrelid = f.oid AND t.tgname LIKE 'forebay\\_%'), '-')";

/// As [`sql`], but NULL when the snapshot is the one that `checked` names: then nothing was committed since.
pub(super) fn sql_unless(told: &str, names: &str, checked: &str) -> String {
    let shapes = sql(told, names);
    format!("CASE WHEN pg_current_snapshot()::text IS DISTINCT FROM {checked}::text THEN {shapes} END")
}

/// A value for each name of the JSON array `names`, in order. Tables are found as statements find them, by
/// the search path, but in the snapshot: `to_regclass` would look past it.
pub(super) fn sql(told: &str, names: &str) -> String {
    format!(
        "ARRAY(WITH RECURSIVE f AS MATERIALIZED ( \
           SELECT named.n, c.* FROM jsonb_array_elements_text({names}) WITH ORDINALITY AS named (name, n) LEFT JOIN LATERAL ( \
             SELECT c.oid, c.relfilenode, c.relkind, c.relpersistence, c.relreplident, c.relrowsecurity, c.xmin AS named, s.xmin AS spaced \
             FROM unnest(current_schemas(true)) WITH ORDINALITY AS path (name, place) JOIN pg_namespace s ON s.nspname = path.name \
             JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = named.name ORDER BY path.place LIMIT 1) c ON true), \
         used (n, oid) AS ( \
           SELECT f.n, a.atttypid FROM f CROSS JOIN LATERAL (SELECT atttypid FROM pg_attribute \
             WHERE attrelid = f.oid AND attnum > 0 AND NOT attisdropped OFFSET 0) a WHERE a.atttypid >= {FIRST_OID} \
           UNION SELECT used.n, below.oid FROM used CROSS JOIN LATERAL (SELECT * FROM pg_type WHERE oid = used.oid OFFSET 0) t \
             CROSS JOIN LATERAL (SELECT t.typbasetype AS oid UNION ALL SELECT t.typelem UNION ALL SELECT atttypid FROM pg_attribute \
               WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped) below WHERE below.oid >= {FIRST_OID}), \
         types AS MATERIALIZED ( \
           SELECT used.n, string_agg(concat_ws(',', t.oid, t.typname, t.typbasetype, t.typtypmod, t.typcollation, \
               (SELECT string_agg(concat_ws(',', e.oid, e.enumsortorder, e.enumlabel), ';' ORDER BY e.oid) FROM pg_enum e WHERE e.enumtypid = t.oid), \
               (SELECT string_agg(concat_ws(',', attnum, attname, atttypid), ';' ORDER BY attnum) FROM pg_attribute \
                 WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped)), ';' ORDER BY t.oid) AS means, \
             string_agg(concat_ws(',', t.typnotnull, t.typdefault, (SELECT string_agg(concat(k.oid, k.conbin::text), ';' ORDER BY k.oid) \
               FROM pg_constraint k WHERE k.contypid = t.oid)), ';' ORDER BY t.oid) AS rules \
           FROM used CROSS JOIN LATERAL (SELECT * FROM pg_type WHERE oid = used.oid OFFSET 0) t GROUP BY used.n) \
         SELECT concat_ws(' ', coalesce(f.oid, 0), {told}, \
           md5(concat_ws('|', {FORM}, f.relfilenode, f.relkind, f.relpersistence, columns.means, types.means, \
             (SELECT string_agg(concat_ws(',', inhrelid, inhparent), ';' ORDER BY inhrelid, inhparent) FROM ( \
               SELECT inhrelid, inhparent FROM pg_inherits WHERE inhrelid = f.oid UNION ALL \
               SELECT inhrelid, inhparent FROM pg_inherits WHERE inhparent = f.oid) i (inhrelid, inhparent)), \
             (SELECT string_agg(concat(t.oid, t.tgenabled), ';' ORDER BY t.oid) FROM pg_trigger t \
               WHERE t.tgrelid = f.oid AND t.tgname NOT LIKE 'forebay\\_%'), \
             (SELECT string_agg(oid::text, ';' ORDER BY oid) FROM pg_rewrite WHERE ev_type <> '1'))), \
           md5(concat_ws('|', columns.rules, types.rules, f.relrowsecurity, \
             (SELECT string_agg(concat_ws(',', adnum, adbin::text), ';' ORDER BY adnum) FROM pg_attrdef WHERE adrelid = f.oid), \
             (SELECT string_agg(concat(indexrelid, indisunique, indisvalid, indislive), ';' ORDER BY indexrelid) FROM pg_index WHERE indrelid = f.oid), \
             (SELECT string_agg(concat(k.oid, k.convalidated), ';' ORDER BY k.oid) FROM pg_constraint k WHERE k.conrelid = f.oid)))) \
         FROM f LEFT JOIN types ON types.n = f.n LEFT JOIN LATERAL ( \
           SELECT string_agg(concat_ws(',', attnum, attname, atttypid, atttypmod, attcollation, attidentity, attgenerated), ';' ORDER BY attnum) AS means, \
             string_agg(attnotnull::text, ',' ORDER BY attnum) AS rules \
           FROM pg_attribute WHERE attrelid = f.oid AND attnum > 0 AND NOT attisdropped) columns ON true ORDER BY f.n)"
    )
}

/// For a transaction that reads shapes: the server would compile the statement, which takes seconds.
pub(super) const UNCOMPILED: &str = "SET LOCAL jit = off";

/// Changes when memory holds the same stored value in another form: what a checkpoint holds is read again.
const FORM: u32 = 2;

/// Types below it come with PostgreSQL, and never change.
const FIRST_OID: u32 = 16_384;

/// The names of the followed tables, as the parameter of [`sql`].
pub(super) fn names(follows: &[Follow]) -> Value {
    let names: Vec<&str> = follows.iter().map(|follow| follow.schema.name.as_str()).collect();
    Value::Text(serde_json::to_string(&names).expect("texts are JSON").into())
}

impl Shape {
    /// The result of [`sql`].
    pub(super) fn parse_all(array: &str) -> Result<Vec<Shape>, Error> {
        let unreadable = || Error::new(Kind::Corrupt, "PostgreSQL's description of the tables is unreadable");
        let texts: Vec<String> =
            serde_json::from_str(array).map_err(|error| unreadable().with_source(error))?;
        texts.iter().map(|text| Shape::parse(text).ok_or_else(unreadable)).collect()
    }

    pub(super) fn parse(text: &str) -> Option<Shape> {
        let mut words = text.split(' ');
        let oid = words.next()?.parse().ok()?;
        let mut word = || words.next().map(str::to_owned);
        let shape = Shape { oid, told: word()?, means: word()?, rules: word()? };
        words.next().is_none().then_some(shape)
    }

    /// Whether what is reported and stored has the same meaning. The rules for its values may differ.
    pub(super) fn means_the_same(&self, other: &Shape) -> bool {
        self.is_told_as(other) && self.means == other.means
    }

    /// Whether it is the same table, and its changes are reported in the same way.
    pub(super) fn is_told_as(&self, other: &Shape) -> bool {
        self.oid == other.oid && self.told == other.told
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.oid, self.told, self.means, self.rules)
    }
}

/// The shape of one table at this moment, in a transaction that is [`UNCOMPILED`].
pub(super) async fn of(session: &mut Session, told: &str, follow: &Follow) -> Result<Shape, Error> {
    let found = session
        .run(&format!("SELECT {}", sql(told, "$1::text::jsonb")), &[names(std::slice::from_ref(follow))])
        .await?;
    let all = Shape::parse_all(found.values.first().map_or("", crate::postgres::table::text))?;
    Ok(all.into_iter().next().unwrap_or_default())
}
