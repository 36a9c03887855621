//! Foreign keys with actions, from the catalogue, and the rows that a delete acts on.

use super::positions::integer;
use super::session::Session;
use super::sql::quoted;
use super::table::text;
use super::{Postgres, errors};
use crate::cascades::{Cascades, Edge, Node};
use crate::reached::{Reached, Search};
use crate::references::Code;
use crate::{Batch, Error, Reference, References};
use forebay_value::{Schema, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const EDGES: &str = "SELECT c.conrelid::regclass::text, c.confrelid::regclass::text, \
       ARRAY(SELECT quote_ident(a.attname) FROM unnest(c.conkey) WITH ORDINALITY k(attnum, n) \
         JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY n), \
       ARRAY(SELECT quote_ident(a.attname) FROM unnest(c.confkey) WITH ORDINALITY k(attnum, n) \
         JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum ORDER BY n), \
       c.confdeltype IN ('c', 'n', 'd'), c.confupdtype IN ('c', 'n', 'd') \
     FROM pg_constraint c WHERE c.contype = 'f' AND c.conparentid = 0 \
       AND (c.confdeltype IN ('c', 'n', 'd') OR c.confupdtype IN ('c', 'n', 'd')) ORDER BY c.oid";

const REFERENCES: &str = "SELECT child.relname::text, parent.relname::text, \
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) k(attnum) \
         JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum) \
     FROM pg_constraint c JOIN pg_class child ON child.oid = c.conrelid JOIN pg_class parent ON parent.oid = c.confrelid \
     WHERE c.contype = 'f' AND pg_table_is_visible(child.oid) AND pg_table_is_visible(parent.oid)";

const TABLES: &str = "SELECT relname::text, oid::int8 FROM pg_class WHERE relkind IN ('r', 'p', 'f') \
     AND relnamespace <> 'pg_catalog'::regnamespace AND pg_table_is_visible(oid)";

/// Tables and views with the functions and arguments of their triggers. Those of following write to tables of
/// ours alone.
const TRIGGERS: &str = "SELECT c.relname::text, f.proname || ' ' || encode(t.tgargs, 'escape') FROM pg_trigger t \
       JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc f ON f.oid = t.tgfoid \
     WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND left(t.tgname, 8) <> 'forebay_' AND pg_table_is_visible(c.oid)";

/// Tables and views, and what their rules name. From the catalogue: to write a rule as text locks its tables.
const RULES: &str = "SELECT c.relname::text, coalesce(other.relname, f.proname)::text FROM pg_rewrite r \
       JOIN pg_class c ON c.oid = r.ev_class JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid \
       LEFT JOIN pg_class other ON d.refclassid = 'pg_class'::regclass AND other.oid = d.refobjid AND other.oid <> c.oid \
       LEFT JOIN pg_proc f ON d.refclassid = 'pg_proc'::regclass AND f.oid = d.refobjid \
     WHERE r.ev_enabled <> 'D' AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) \
       AND coalesce(other.oid, f.oid) IS NOT NULL";

const FUNCTIONS: &str = "SELECT DISTINCT p.proname::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
     WHERE l.lanname NOT IN ('internal', 'c') \
       AND p.pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)";

/// The text of a function, or what a body that was parsed when it was made names.
const BODIES: &str = "SELECT p.proname::text, p.prosrc || coalesce((SELECT string_agg(' ' || coalesce(c.relname, f.proname), '') \
         FROM pg_depend d LEFT JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid \
           LEFT JOIN pg_proc f ON d.refclassid = 'pg_proc'::regclass AND f.oid = d.refobjid \
         WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid), '') \
     FROM pg_proc p WHERE p.proname::text IN ";

impl Postgres {
    pub(crate) async fn references(&self) -> Result<References, Error> {
        self.job(|bulk| async move {
            let session = &mut *bulk.sessions.lease().await?;
            // One snapshot: a table that is renamed in between would be in the one answer alone.
            session.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
            let read = references(session).await;
            session.end(read).await
        })
        .await
    }

    pub(crate) async fn cascades(&self, schemas: &[Arc<Schema>]) -> Result<Cascades, Error> {
        let schemas = schemas.to_vec();
        self.job(|bulk| async move { read(&mut *bulk.sessions.lease().await?, &schemas).await }).await
    }

    pub(crate) async fn reached(
        &self,
        cascades: Arc<Cascades>,
        schemas: Vec<Arc<Schema>>,
        rows: Vec<(usize, Value)>,
    ) -> Result<Vec<Reached>, Error> {
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease().await?;
            session.begin_job().await?;
            let found = of_rows(&mut session, &cascades, &schemas, rows).await;
            session.rollback().await;
            found
        })
        .await
    }
}

async fn references(session: &mut Session) -> Result<References, Error> {
    let found = session.run(REFERENCES, &[]).await?;
    let key = |row: &[Value]| Reference {
        child: text(&row[0]).into(),
        parent: text(&row[1]).into(),
        columns: Some(names(&row[2])),
    };
    let mut keys: Vec<Reference> = found.iter().map(key).collect();
    let found = session.run(TABLES, &[]).await?;
    let tables: BTreeMap<String, Option<i64>> =
        found.iter().map(|row| (text(&row[0]).into(), Some(integer(&row[1])))).collect();
    keys.extend(code(session).await?.references(&tables.keys().cloned().collect()));
    Ok(References { keys, tables })
}

/// What runs beside the changes of tables. Takes no locks of tables.
async fn code(session: &mut Session) -> Result<Code, Error> {
    let mut code = Code::default();
    for row in session.run(TRIGGERS, &[]).await?.iter() {
        code.add(text(&row[0]), text(&row[1]));
    }
    // Those of views say what a trigger reads and writes through them.
    for row in session.run(RULES, &[]).await?.iter() {
        code.add(text(&row[0]), text(&row[1]));
    }
    if code.is_empty() {
        return Ok(code);
    }
    let mut names = BTreeSet::new();
    for row in session.run(FUNCTIONS, &[]).await?.iter() {
        names.insert(text(&row[0]).to_owned());
    }
    loop {
        let called: Vec<String> = names.extract_if(.., |name| code.lacks(name)).collect();
        if called.is_empty() {
            return Ok(code);
        }
        let list: Vec<String> = called.iter().map(|name| format!("'{}'", name.replace('\'', "''"))).collect();
        for row in session.run(&format!("{BODIES}({})", list.join(", ")), &[]).await?.iter() {
            code.add(text(&row[0]), text(&row[1]));
        }
    }
}

async fn read(session: &mut Session, schemas: &[Arc<Schema>]) -> Result<Cascades, Error> {
    let mut edges = Vec::new();
    for row in session.run(EDGES, &[]).await?.iter() {
        let (child, parent) = (text(&row[0]).to_owned(), text(&row[1]).to_owned());
        let (child_columns, parent_columns) = (names(&row[2]), names(&row[3]));
        let on = (row[4] == Value::Bool(true), row[5] == Value::Bool(true));
        edges.push(Edge { child, parent, child_columns, parent_columns, on });
    }
    if edges.is_empty() {
        return Ok(Cascades::default());
    }
    let mut nodes = Vec::with_capacity(schemas.len());
    for schema in schemas {
        let name = [Value::Text(quoted(&schema.name).into())];
        let found = session.run("SELECT to_regclass($1)::text", &name).await?;
        if let Some(Value::Text(table)) = found.values.first() {
            let key = quoted(&schema.key_column().name);
            nodes.push(Node { schema: schema.clone(), table: table.to_string(), key });
        }
    }
    Ok(Cascades::of(&nodes, &edges, "$1", " FOR UPDATE"))
}

/// An array of texts.
fn names(value: &Value) -> Vec<String> {
    let Value::Json(names) = value else { return Vec::new() };
    serde_json::from_str(names).unwrap_or_default()
}

/// The rows that the deletes of a batch act on, locked in the open transaction.
pub(super) async fn of_batch(session: &mut Session, batch: &Batch) -> Result<Reached, Error> {
    let Some(search) = Search::of(batch) else { return Ok(Vec::new()) };
    for change in &batch.changes {
        // A transaction that inserts a row referring to this one waits from now on.
        let schema = &batch.schemas[change.table];
        let (table, name) = (quoted(&schema.name), quoted(&schema.key_column().name));
        let key = change.op.key(schema).to_owned();
        let locked =
            session.run(&format!("SELECT 1 FROM {table} WHERE {name} = $1 FOR UPDATE"), &[key]).await;
        locked.map_err(|error| errors::stuck(error, Some(&schema.name)))?;
    }
    run(session, search).await?.of_batch(batch)
}

async fn of_rows(
    session: &mut Session,
    cascades: &Cascades,
    schemas: &[Arc<Schema>],
    rows: Vec<(usize, Value)>,
) -> Result<Vec<Reached>, Error> {
    let mut found = Vec::with_capacity(rows.len());
    for (table, key) in &rows {
        let mut search = Search::new(cascades, schemas);
        search.from(*table, key);
        found.push(run(session, search).await?.found);
    }
    Ok(found)
}

async fn run<'c>(session: &mut Session, mut search: Search<'c>) -> Result<Search<'c>, Error> {
    while let Some((reach, key)) = search.next() {
        let rows = session.run(&reach.sql, &[key]).await;
        let rows = rows.map_err(|error| errors::stuck(error, Some(&reach.from)))?;
        search.take(reach, rows.values);
    }
    Ok(search)
}
