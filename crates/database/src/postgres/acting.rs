//! Which changes act, from the catalogue.
//!
//! What must stay true: the stamp of the facts is compared after the last statement of a batch, before its
//! COMMIT. Each statement has locked its table, so that no trigger, rule or foreign key of it can come or go
//! until the transaction has ended.

use super::bulk::array;
use super::positions::integer;
use super::session::{Prepared, Session};
use super::sql::quoted;
use super::table::text;
use crate::acting::{Acting, ColumnsNow, Root, Stamp, TableActing, column_indexes};
use crate::{Batch, Error, Kind};
use forebay_value::{Schema, Value, ValueRef};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Identifies the triggers, rules and descendants of a table `of`: each by its number, and by the transaction
/// that wrote its entry.
const ENTRY: &str = "concat_ws('/', of.of::text,
    (SELECT string_agg(t.oid::text || ':' || t.xmin::text, ',' ORDER BY t.oid) FROM pg_trigger t WHERE t.tgrelid = of.of),
    (SELECT 'r' || string_agg(w.oid::text || ':' || w.xmin::text, ',' ORDER BY w.oid) FROM pg_rewrite w WHERE w.ev_class = of.of),
    (SELECT 'p' || string_agg(i.inhrelid::text, ',' ORDER BY i.inhrelid) FROM pg_inherits i WHERE i.inhparent = of.of))";

/// The columns of a table `n.of`, as JSON: their names and types by their numbers.
const COLUMNS: &str =
    "(SELECT json_object_agg(a.attnum, json_build_array(a.attname, a.atttypid::int8, a.atttypmod) ORDER BY a.attnum)::text
    FROM pg_attribute a WHERE a.attrelid = n.of AND a.attnum > 0 AND NOT a.attisdropped)";

/// Returns for each of the tables with the names `$1`, and for each table that it reaches through its
/// descendants (`own`) and through foreign keys with actions: its entry, its kind, its rules, its triggers
/// that act, and the columns of a table that is named. The functions of foreign keys have fixed numbers:
/// `RI_FKey_cascade_del` and `_upd`, `RI_FKey_setnull_…`, `RI_FKey_setdefault_…`; and `RI_FKey_restrict_…`
/// and `RI_FKey_noaction_…`, which refuse a change as long as rows refer to the old values. Of the server's
/// other trigger functions none depends on other rows.
const FACTS: &str = "WITH RECURSIVE reached (place, root, of, own) AS (
    SELECT n.place, to_regclass(n.name)::oid, to_regclass(n.name)::oid, true
    FROM unnest($1::text[]) WITH ORDINALITY AS n (name, place) WHERE to_regclass(n.name) IS NOT NULL
    UNION SELECT r.place, r.root, n.of, n.own FROM reached r CROSS JOIN LATERAL (
      SELECT inhrelid AS of, r.own FROM pg_inherits WHERE inhparent = r.of
      UNION ALL SELECT tgconstrrelid, false FROM pg_trigger
        WHERE tgrelid = r.of AND tgfoid IN (1646, 1647, 1650, 1651, 1652, 1653)) n
  )
  SELECT of.place, of.root::int8, of.of::int8, of.own, {entry},
    (SELECT c.relkind::text FROM pg_class c WHERE c.oid = of.of),
    (SELECT string_agg(w.ev_type::text, '') FROM pg_rewrite w WHERE w.ev_class = of.of AND w.ev_enabled <> 'D'),
    (SELECT json_agg(json_build_object('is_code', t.tgfoid >= 16384, 'bits', t.tgtype, 'columns', ARRAY(
        SELECT a.attname FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = ANY (c.confkey)
        WHERE c.oid = t.tgconstraint AND c.contype = 'f')))::text
      FROM pg_trigger t WHERE t.tgrelid = of.of
        AND t.tgenabled::text IN ('A', CASE current_setting('session_replication_role') WHEN 'replica' THEN 'R' ELSE 'O' END)
        AND (t.tgfoid IN (1646, 1647, 1648, 1649, 1650, 1651, 1652, 1653, 1654, 1655) OR t.tgfoid >= 16384 AND NOT (t.tgname LIKE 'forebay\\_%'
          AND EXISTS (SELECT FROM pg_proc p WHERE p.oid = t.tgfoid AND p.proname LIKE 'forebay\\_tell\\_%')))),
    (SELECT {columns} FROM (SELECT of.of WHERE of.of = of.root) AS n)
  FROM reached of ORDER BY of.place";

/// Returns the numbers of the tables with the names `$1` and their columns, and the entries of the tables
/// with the numbers `$2`, in the form of [`Expected::told`].
const NOW: &str = "SELECT concat((SELECT string_agg(concat(coalesce(n.of, 0), ' ', {columns}), E'\\n' ORDER BY n.place)
      FROM (SELECT to_regclass(name)::oid AS of, place FROM unnest($1::text[]) WITH ORDINALITY AS n (name, place) OFFSET 0) AS n), E'\\n',
    (SELECT string_agg({entry}, E'\\n' ORDER BY of.place)
      FROM (SELECT number::oid, place FROM unnest($2::int8[]) WITH ORDINALITY AS o (number, place)) AS of (of, place))) AS told";

/// `pg_trigger.tgtype`.
const EACH_ROW: u16 = 1;
const BEFORE: u16 = 2;
const INSERT: u16 = 4;
const DELETE: u16 = 8;
const UPDATE: u16 = 16;

#[derive(Deserialize)]
struct Trigger {
    /// False: it belongs to a foreign key.
    is_code: bool,
    bits: u16,
    /// The columns that the foreign key refers to.
    columns: Vec<String>,
}

/// Reads which changes of these tables act; nothing is known of those that are not wanted.
pub(super) async fn read(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    is_wanted: impl Fn(usize) -> bool,
) -> Result<Acting, Error> {
    let wanted = schemas.iter().enumerate().map(|(at, schema)| is_wanted(at).then_some(schema));
    let found = session.run(&of_table(FACTS), &[names(wanted)]).await?;
    let mut tables = vec![TableActing::default(); schemas.len()];
    let root = Root { told: "0 ".into(), reached: Vec::new() };
    let (mut roots, mut entries) = (vec![root; schemas.len()], BTreeMap::new());
    for row in found.iter() {
        // Counted from 1.
        let place = integer(&row[0]).unsigned_abs() as usize - 1;
        let (root, of, is_own) = (integer(&row[1]), integer(&row[2]), row[3] == Value::Bool(true));
        roots[place].reached.push(of);
        entries.insert(of, text(&row[4]).to_owned());
        let facts =
            Facts { kind: text(&row[5]), rules: text(&row[6]), triggers: json(&row[7])?.unwrap_or_default() };
        facts.note(&mut tables[place], &schemas[place], is_own, of == root);
        if of == root {
            roots[place].told = format!("{of} {}", text(&row[8]));
            let columns: BTreeMap<i32, (String, i64, i64)> = json(&row[8])?.unwrap_or_default();
            let names = columns.into_iter().map(|(number, (name, _, _))| (number, name)).collect();
            tables[place].now = Some(Arc::new(ColumnsNow { table: of, names }));
        }
    }
    tables.iter_mut().for_each(TableActing::complete);
    Ok(Acting::new(tables, Stamp::Catalogue { tables: roots, entries }))
}

/// `None`: it is NULL.
fn json<T: DeserializeOwned>(told: &Value) -> Result<Option<T>, Error> {
    let told = text(told);
    let read = (!told.is_empty()).then(|| serde_json::from_str(told)).transpose();
    read.map_err(|source| {
        Error::new(Kind::Corrupt, "the catalogue is told otherwise than asked").with_source(source)
    })
}

/// What the catalogue says about one table.
struct Facts<'a> {
    kind: &'a str,
    rules: &'a str,
    triggers: Vec<Trigger>,
}

impl Facts<'_> {
    /// Adds the facts to those of a table that reaches this one: `is_own` when it is the same or a
    /// descendant.
    fn note(&self, table: &mut TableActing, schema: &Arc<Schema>, is_own: bool, is_root: bool) {
        // Nothing is known about what a foreign server does.
        let is_foreign = self.kind == "f";
        let code = self.triggers.iter().filter(|trigger| trigger.is_code);
        table.runs_code |= is_foreign || !self.rules.is_empty() || code.clone().count() > 0;
        if !is_own {
            return;
        }
        table.has_rules |= !self.rules.is_empty();
        table.has_descendants |= !is_root;
        table.may_skip |= self.rules.contains('3');
        let mut on = if is_foreign || table.has_rules { INSERT | UPDATE | DELETE } else { 0 };
        for trigger in code {
            on |= trigger.bits;
            let skips = EACH_ROW | BEFORE | INSERT;
            table.may_skip |= trigger.bits & skips == skips;
        }
        for key in self.triggers.iter().filter(|trigger| !trigger.is_code) {
            on |= key.bits & DELETE;
            if key.bits & UPDATE != 0 {
                table.columns.extend(column_indexes(schema, key.columns.iter().map(String::as_str)));
                table.column_names.extend(key.columns.iter().cloned());
            }
        }
        table.inserts |= on & INSERT != 0;
        table.updates |= on & UPDATE != 0;
        table.deletes |= on & DELETE != 0;
    }
}

/// What a batch expects of the catalogue.
pub(super) struct Expected {
    /// The names of the tables that it was prepared for, and the numbers of those that these reach.
    values: [Value; 2],
    told: String,
}

impl Expected {
    /// `None`: the batch is of no table, or alters tables itself.
    pub(super) fn of(batch: &Batch, acting: &Acting) -> Option<Expected> {
        if batch.basis.as_ref().is_some_and(|basis| basis.alters) {
            return None;
        }
        let Stamp::Catalogue { tables, entries } = &acting.stamp else { return None };
        let changed =
            batch.basis.as_ref().map_or_else(|| batch.changed_tables(), |basis| basis.tables.clone());
        let mut reached: Vec<i64> =
            changed.iter().flat_map(|&table| tables[table].reached.iter().copied()).collect();
        reached.sort_unstable();
        reached.dedup();
        let roots: Vec<&str> = changed.iter().map(|&table| &*tables[table].told).collect();
        let mut told = roots.join("\n") + "\n";
        told += &reached.iter().map(|of| entries[of].as_str()).collect::<Vec<_>>().join("\n");
        let names = names(changed.iter().map(|&table| Some(&batch.schemas[table])));
        let reached = array(reached.into_iter().map(ValueRef::Bigint));
        (!changed.is_empty()).then_some(Expected { values: [names, reached], told })
    }

    /// Compares in the open transaction, which has changed the tables.
    pub(super) async fn check(&self, session: &mut Session) -> Result<(), Error> {
        let found = session.run(&of_table(NOW), &self.values).await?;
        if found.values.first().map_or("", text) == self.told {
            return Ok(());
        }
        let message =
            "a table has other triggers, rules, foreign keys or columns than when the batch was prepared";
        Err(Error::new(Kind::Altered, message))
    }

    /// A statement that fails when the catalogue differs, and its values.
    pub(super) async fn guard(&self, session: &mut Session) -> Result<(Arc<Prepared>, Vec<Value>), Error> {
        let now = of_table(NOW);
        let sql = format!("SELECT 1 / (now.told = $3)::int FROM ({now}) AS now");
        let prepared = session.prepared(&sql.into(), &[]).await?;
        let [names, reached] = self.values.clone();
        Ok((prepared, vec![names, reached, Value::Text(self.told.as_str().into())]))
    }
}

/// A statement with its parts.
fn of_table(sql: &str) -> String {
    sql.replace("{entry}", ENTRY).replace("{columns}", COLUMNS)
}

/// The names of tables in SQL.
fn names<'a>(schemas: impl Iterator<Item = Option<&'a Arc<Schema>>>) -> Value {
    let names: Vec<Option<String>> =
        schemas.map(|schema| schema.map(|schema| quoted(&schema.name))).collect();
    array(names.iter().map(|name| name.as_deref().map_or(ValueRef::Null, ValueRef::Text)))
}
