//! Which changes act, from the schema.
//!
//! What must stay true: the facts are compared in the transaction of a batch, which no other process can
//! alter the schema beside. A trigger's text alone says for which statements it runs, so that every change of
//! a table with a trigger counts as acting; so does one of a table whose text speaks of a conflict that
//! replaces rows, which is a delete of them. A key without an action counts too: it refuses a change as long
//! as rows refer to the old values.

use super::errors::map;
use crate::acting::{Acting, Stamp, TableActing, column_indexes};
use crate::{Basis, Batch, Error, Kind};
use forebay_value::Schema;
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The triggers and foreign keys of a database, at one version of its schema.
pub(super) struct SchemaFacts {
    version: i64,
    /// Whether some table has a foreign key.
    pub(super) has_foreign_keys: bool,
    /// The names of tables with triggers that are not following's, or with such a text; in lower case.
    act: HashSet<String>,
    /// The columns that foreign keys refer to, by the referenced table's name in lower case; `None`: one that
    /// is not there.
    keys: HashMap<String, Vec<Option<String>>>,
}

const TRIGGERS: &str = "SELECT lower(tbl_name) FROM sqlite_schema WHERE type = 'trigger' \
       AND NOT (name LIKE 'forebay\\_%' ESCAPE '\\' AND sql LIKE '%forebay\\_change%' ESCAPE '\\') \
     UNION SELECT lower(name) FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%CONFLICT%' AND sql LIKE '%REPLACE%'";

/// A referenced column without a name is the one at the same place in the primary key.
const KEYS: &str = "SELECT lower(f.\"table\"), \
       coalesce(f.\"to\", (SELECT k.name FROM pragma_table_info(f.\"table\") k WHERE k.pk = f.seq + 1)) \
     FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table'";

pub(super) fn version(connection: &Connection) -> Result<i64, Error> {
    let read = connection.prepare_cached("PRAGMA schema_version");
    read.and_then(|mut version| version.query_one([], |row| row.get(0))).map_err(map)
}

impl SchemaFacts {
    /// Reads the facts, in one transaction.
    pub(super) fn read(connection: &Connection) -> Result<SchemaFacts, Error> {
        connection.execute_batch("SAVEPOINT facts").map_err(map)?;
        let facts = SchemaFacts::read_in_transaction(connection);
        connection.execute_batch("RELEASE facts").map_err(map)?;
        facts
    }

    pub(super) fn read_in_transaction(connection: &Connection) -> Result<SchemaFacts, Error> {
        let act = |connection: &Connection| -> rusqlite::Result<HashSet<String>> {
            connection.prepare_cached(TRIGGERS)?.query_map([], |row| row.get(0))?.collect()
        };
        let keys = |connection: &Connection| -> rusqlite::Result<HashMap<String, Vec<Option<String>>>> {
            let mut keys: HashMap<String, Vec<Option<String>>> = HashMap::new();
            let mut statement = connection.prepare_cached(KEYS)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                keys.entry(row.get(0)?).or_default().push(row.get(1)?);
            }
            Ok(keys)
        };
        let version = version(connection)?;
        let act = act(connection).map_err(map)?;
        let keys = keys(connection).map_err(map)?;
        Ok(SchemaFacts { version, has_foreign_keys: !keys.is_empty(), act, keys })
    }

    pub(super) fn is_of(&self, version: i64) -> bool {
        self.version == version
    }

    pub(super) fn acting(&self, schemas: &[Arc<Schema>]) -> Acting {
        Acting::new(schemas.iter().map(|schema| self.table(schema)).collect(), Stamp::Version(self.version))
    }

    fn table(&self, schema: &Arc<Schema>) -> TableActing {
        let name = schema.name.to_ascii_lowercase();
        if self.act.contains(&name) {
            let (inserts, updates, deletes) = (true, true, true);
            return TableActing { inserts, updates, deletes, runs_code: true, ..TableActing::default() };
        }
        let keys = self.keys.get(&name).map_or(&[][..], Vec::as_slice);
        let column_names: Vec<String> = keys.iter().flatten().cloned().collect();
        TableActing {
            deletes: !keys.is_empty(),
            columns: column_indexes(schema, column_names.iter().map(String::as_str)),
            column_names,
            ..TableActing::default()
        }
    }

    /// Compares the facts that a batch was prepared for with these.
    pub(super) fn check(&self, batch: &Batch) -> Result<(), Error> {
        let Some(Basis { acting, tables, judged, .. }) = &batch.basis else { return Ok(()) };
        let is_same = |&table: &usize| *acting.of(table) == self.table(&batch.schemas[table]);
        if matches!(acting.stamp, Stamp::Version(version) if version == self.version)
            || judged.is_empty() && tables.iter().all(is_same)
        {
            return Ok(());
        }
        let message = "a table has other triggers or foreign keys than when the batch was prepared";
        Err(Error::new(Kind::Altered, message))
    }
}
