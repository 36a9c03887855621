//! Foreign keys with actions, from the pragmas, and the rows that a delete acts on.

use super::errors::map;
use super::schema::quoted;
use super::{Sqlite, types};
use crate::cascades::{Cascades, Edge, Node};
use crate::reached::{Reached, Search};
use crate::references::Code;
use crate::{Batch, Error, Reference, References};
use forebay_value::{Schema, Value};
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A referenced column without a name is the one at the same place in the primary key.
const EDGES: &str = "SELECT m.name, p.name, f.id, f.\"from\", \
       coalesce(f.\"to\", (SELECT k.name FROM pragma_table_info(p.name) k WHERE k.pk = f.seq + 1)), \
       f.on_delete IN ('CASCADE', 'SET NULL', 'SET DEFAULT'), f.on_update IN ('CASCADE', 'SET NULL', 'SET DEFAULT') \
     FROM sqlite_schema m, pragma_foreign_key_list(m.name) f \
     JOIN sqlite_schema p ON p.type = 'table' AND p.name = f.\"table\" COLLATE NOCASE \
     WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq";

impl Sqlite {
    pub(crate) async fn references(&self) -> Result<References, Error> {
        self.readers.submit(references).await
    }

    pub(crate) async fn cascades(&self, schemas: &[Arc<Schema>]) -> Result<Cascades, Error> {
        let schemas = schemas.to_vec();
        self.readers.submit(move |connection| read(connection, &schemas)).await
    }

    pub(crate) async fn reached(
        &self,
        cascades: Arc<Cascades>,
        schemas: Vec<Arc<Schema>>,
        rows: Vec<(usize, Value)>,
    ) -> Result<Vec<Reached>, Error> {
        let search = move |connection: &Connection| {
            let mut found = Vec::with_capacity(rows.len());
            for (table, key) in &rows {
                let mut search = Search::new(&cascades, &schemas);
                search.from(*table, key);
                found.push(run(connection, search)?.found);
            }
            Ok(found)
        };
        self.readers.submit(search).await
    }
}

/// Tables and views with the texts of their triggers, and views. Triggers of following write to our tables
/// alone.
const CODE: &str = "SELECT of.name, t.sql FROM sqlite_schema t JOIN sqlite_schema of ON of.name = t.tbl_name COLLATE NOCASE \
       WHERE t.type = 'trigger' AND of.type IN ('table', 'view') AND t.name NOT LIKE 'forebay\\_%' ESCAPE '\\' \
     UNION ALL SELECT name, sql FROM sqlite_schema WHERE type = 'view'";

fn references(connection: &Connection) -> Result<References, Error> {
    // One snapshot: a table that is renamed in between would be in the one answer alone.
    connection.execute_batch("SAVEPOINT one").map_err(map)?;
    let read = references_in_snapshot(connection);
    connection.execute_batch("RELEASE one").map_err(map)?;
    read
}

fn references_in_snapshot(connection: &Connection) -> Result<References, Error> {
    let mut statement = connection.prepare_cached(EDGES).map_err(map)?;
    let key = |row: &Row<'_>| {
        Ok(Reference {
            child: row.get(0)?,
            parent: row.get(1)?,
            columns: Some(row.get::<_, Option<String>>(4)?.into_iter().collect()),
        })
    };
    let keys = statement.query_map([], key).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut keys = keys.map_err(map)?;
    let mut statement =
        connection.prepare_cached("SELECT name FROM sqlite_schema WHERE type = 'table'").map_err(map)?;
    let tables = statement.query_map([], |row| row.get(0)).and_then(Iterator::collect::<Result<_, _>>);
    let tables: BTreeSet<String> = tables.map_err(map)?;
    let mut statement = connection.prepare_cached(CODE).map_err(map)?;
    let (mut code, mut texts) = (Code::default(), statement.query([]).map_err(map)?);
    while let Some(row) = texts.next().map_err(map)? {
        code.add(&row.get::<_, String>(0).map_err(map)?, &row.get::<_, String>(1).map_err(map)?);
    }
    keys.extend(code.references(&tables));
    Ok(References { keys, tables: tables.into_iter().map(|table| (table, None)).collect() })
}

fn read(connection: &Connection, schemas: &[Arc<Schema>]) -> Result<Cascades, Error> {
    let mut statement = connection.prepare_cached(EDGES).map_err(map)?;
    let mut rows = statement.query([]).map_err(map)?;
    let (mut edges, mut last) = (Vec::<Edge>::new(), None);
    while let Some(row) = rows.next().map_err(map)? {
        let name = |index| row.get::<_, String>(index).map(|name| quoted(&name)).map_err(map);
        let (child, parent, id) = (name(0)?, name(1)?, row.get::<_, i64>(2).map_err(map)?);
        let place = Some((child.clone(), id));
        if place != last {
            let (child_columns, parent_columns) = (Vec::new(), Vec::new());
            let on = (row.get(5).map_err(map)?, row.get(6).map_err(map)?);
            edges.push(Edge { child, child_columns, parent, parent_columns, on });
            last = place;
        }
        if let Some(edge) = edges.last_mut() {
            edge.child_columns.push(name(3)?);
            edge.parent_columns.push(name(4)?);
        }
    }
    let mut nodes = Vec::with_capacity(schemas.len());
    for schema in schemas {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
        let found = connection.query_row(sql, [&schema.name], |row| row.get::<_, String>(0)).optional();
        if let Some(table) = found.map_err(map)? {
            let (table, key) = (quoted(&table), quoted(&schema.key_column().name));
            nodes.push(Node { schema: schema.clone(), table, key });
        }
    }
    Ok(Cascades::of(&nodes, &edges, "?1", ""))
}

/// The rows that the deletes of a batch act on, in the open transaction: no other transaction writes.
pub(super) fn of_batch(connection: &Connection, batch: &Batch) -> Result<Reached, Error> {
    Search::of(batch).map_or(Ok(Vec::new()), |search| run(connection, search)?.of_batch(batch))
}

fn run<'c>(connection: &Connection, mut search: Search<'c>) -> Result<Search<'c>, Error> {
    while let Some((reach, key)) = search.next() {
        let ty = reach.to.key_column().ty;
        let mut statement = connection.prepare_cached(&reach.sql).map_err(map)?;
        types::bind(&mut statement, 1, key.as_ref()).map_err(map)?;
        let mut rows = statement.raw_query();
        let mut keys = Vec::new();
        while let Some(row) = rows.next().map_err(map)? {
            keys.extend(types::typed(ty, row.get_ref(0).map_err(map)?));
        }
        search.take(reach, keys);
    }
    Ok(search)
}
