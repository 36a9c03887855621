//! The catalogue: the table and the columns that each table id in the log means.
//!
//! The file `tables.json` in the data folder:
//! ```text
//! { "version": 1, "tables": [ { "id": 1, "name": "codes", "key": "id", "key_kind": "serial",
//!     "columns": [ { "name": "id", "type": "bigint", "nullable": false }, … ] }, … ] }
//! ```
//! It contains what is needed to read a row, for every id that was ever used; ids are never reused for other
//! columns. `numbers`, where they are known, are those of the table and its columns in the database
//! ([`Numbers`]): changes in the log mean these columns, whatever their names are now. The file is replaced
//! as a whole (written beside, synced, renamed, folder synced) before a new id is used. A table whose columns
//! change, in name, number, type (the limit of a text aside), order or key, gets a new id, at a start or
//! while it is followed; one that goes back to old columns gets its old id back. Valid: version 1, ids and
//! columns without duplicates, types and key kinds known, the key among the columns and of its kind.

use crate::error::{Error, Kind};
use crate::record::TableId;
use forebay_value::{Column, KeyKind, Need, Numbering, Numbers, Schema, Type};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

const FILE: &str = "tables.json";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    tables: Vec<StoredTable>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTable {
    id: u16,
    name: String,
    key: String,
    key_kind: String,
    columns: Vec<StoredColumn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    numbers: Option<StoredNumbers>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredColumn {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    nullable: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredNumbers {
    table: i64,
    columns: Vec<i32>,
}

/// The table and the columns that each table id in the log means.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    tables: BTreeMap<TableId, Arc<Schema>>,
}

impl Catalogue {
    /// The table and the columns of records with this id. For a table that is still configured with these
    /// columns: its present schema.
    pub fn schema(&self, id: TableId) -> Option<&Arc<Schema>> {
        self.tables.get(&id)
    }

    /// All ids, also of tables and columns that are no longer configured.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &Arc<Schema>)> {
        self.tables.iter().map(|(id, schema)| (*id, schema))
    }

    /// Each id, and what its changes mean.
    pub(crate) fn meanings(&self) -> Vec<(TableId, Option<Arc<Numbering>>)> {
        self.tables.iter().map(|(id, schema)| (*id, schema.numbers.logged().cloned())).collect()
    }

    /// Reads the file of a data folder; `None` when there is none.
    pub(crate) fn read(dir: &Path) -> Result<Option<Catalogue>, Error> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Error::caused(Kind::Io, format!("cannot read {}", path.display()), error));
            }
        };
        let stored: Stored = serde_json::from_slice(&text).map_err(|error| {
            Error::caused(Kind::Catalogue, format!("cannot use {}", path.display()), error)
        })?;
        let wrong =
            |what: String| Error::new(Kind::Catalogue, format!("cannot use {}: {what}", path.display()));
        if stored.version != VERSION {
            return Err(wrong(format!("it has version {}, this program knows {VERSION}", stored.version)));
        }
        let mut catalogue = Catalogue::default();
        for table in stored.tables {
            let id = TableId(table.id);
            let schema = table.schema().map_err(wrong)?;
            if catalogue.tables.insert(id, Arc::new(schema)).is_some() {
                return Err(wrong(format!("id {id} is there twice")));
            }
        }
        Ok(Some(catalogue))
    }

    /// The error when the file is missing, and there are records that cannot be read without it.
    pub(crate) fn missing(dir: &Path) -> Error {
        let message = format!(
            "{} is missing, and the log beside it holds records: which table each of them is of, and with which \
             columns, cannot be known. Put the file back from a backup of this folder. Without one, move the folder \
             away and start with an empty one: the tables are loaded from the database, and what was not drained \
             from this folder is lost",
            dir.join(FILE).display()
        );
        Error::new(Kind::Catalogue, message)
    }

    /// One table as text, for a tier that stores tables one by one.
    pub(crate) fn entry_text(id: TableId, schema: &Schema) -> Result<String, Error> {
        serde_json::to_string(&StoredTable::new(id, schema))
            .map_err(|error| Error::caused(Kind::Catalogue, "cannot write the catalogue", error))
    }

    /// Adds one table from its text.
    pub(crate) fn read_entry(&mut self, text: &[u8]) -> Result<(), Error> {
        let wrong = |what: String| Error::new(Kind::Catalogue, format!("cannot use the catalogue: {what}"));
        let stored: StoredTable = serde_json::from_slice(text)
            .map_err(|error| Error::caused(Kind::Catalogue, "cannot use the catalogue", error))?;
        let id = TableId(stored.id);
        let schema = stored.schema().map_err(wrong)?;
        match self.tables.insert(id, Arc::new(schema)) {
            None => Ok(()),
            Some(_) => Err(wrong(format!("id {id} is there twice"))),
        }
    }

    /// The id of a table with these columns: an existing one, or a new one. `is_unread`: columns without
    /// numbers were not read from the database; they have those that are known.
    pub(crate) fn assign(&mut self, schema: &mut Schema, is_unread: bool) -> Result<TableId, Error> {
        // The last one is what the numbers are used with.
        let known = self.tables.iter().rev().find(|(_, known)| is_same(known, schema));
        let Some((id, known)) = known.map(|(id, known)| (*id, known.clone())) else {
            return self.add(schema.clone());
        };
        match (known.numbers.logged(), schema.numbers.logged()) {
            (Some(numbers), None) if is_unread => {
                schema.numbers = schema.numbers.with_logged(Some(numbers.clone()));
            }
            (None, None) => {}
            (None, Some(_)) => drop(self.tables.insert(id, Arc::new(schema.clone()))),
            (Some(known), Some(numbers)) if known == numbers => {}
            // It was made again: what is logged means columns by their names.
            (Some(known), Some(numbers)) if known.table != numbers.table => {
                self.tables.insert(id, Arc::new(schema.clone()));
            }
            (Some(_), _) => return self.add(schema.clone()),
        }
        Ok(id)
    }

    /// Adds a table under a new id.
    pub(crate) fn add(&mut self, schema: Schema) -> Result<TableId, Error> {
        let next = self.tables.last_key_value().map_or(1, |(last, _)| u32::from(last.0) + 1);
        let id =
            u16::try_from(next).map_err(|_| Error::new(Kind::Catalogue, "there are no table ids left"))?;
        self.tables.insert(TableId(id), Arc::new(schema));
        Ok(TableId(id))
    }

    /// Gives an id the present schema of its table. Older schemas need of it what it needs.
    pub(crate) fn set(&mut self, id: TableId, schema: Arc<Schema>) {
        let older = |(other, known): &(&TableId, &Arc<Schema>)| **other != id && known.name == schema.name;
        for (_, known) in self.tables.iter().filter(older) {
            for (place, column) in known.columns.iter().enumerate() {
                let named = schema.position(&column.name);
                let need = named.map_or(Need::Nothing, |now| schema.presence.need(now));
                // A client may have set what is another column now, or none.
                let is_moved = numbered(known, place, &schema).is_some_and(|now| now != named);
                let need = if is_moved { need.max(Need::Endpoints) } else { need };
                known.presence.set_need(place, if place == known.key { Need::Table } else { need });
            }
        }
        self.tables.insert(id, schema);
    }

    /// Replaces the file of a data folder.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), Error> {
        let tables = self.tables().map(|(id, schema)| StoredTable::new(id, schema)).collect();
        let text = serde_json::to_vec_pretty(&Stored { version: VERSION, tables })
            .map_err(|error| Error::caused(Kind::Catalogue, "cannot write the catalogue", error))?;
        let path = dir.join(FILE);
        replace(dir, &path, &text)
            .map_err(|error| Error::caused(Kind::Io, format!("cannot write {}", path.display()), error))
    }
}

fn replace(dir: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    let mut file = File::create(&beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(dir)?.sync_all()
}

/// Where the column of an older schema is in the present one, by its number: perhaps it is not there. `None`:
/// it has no number.
fn numbered(known: &Schema, column: usize, now: &Schema) -> Option<Option<usize>> {
    let (then, now) = known.numbers.logged().zip(now.numbers.logged())?;
    let number = then.columns[column];
    let is_numbered = then.table == now.table && number != 0;
    is_numbered.then(|| now.columns.iter().position(|now| *now == number))
}

/// Whether rows of one can be read as rows of the other.
fn is_same(one: &Schema, other: &Schema) -> bool {
    let same_type = |one: Type, other: Type| one.unbounded() == other.unbounded();
    one.name == other.name
        && one.key == other.key
        && one.columns.len() == other.columns.len()
        && one
            .columns
            .iter()
            .zip(&other.columns)
            .all(|(one, other)| one.name == other.name && same_type(one.ty, other.ty))
}

const KEY_KINDS: [(KeyKind, &str); 4] = [
    (KeyKind::Serial, "serial"),
    (KeyKind::Bigint, "bigint"),
    (KeyKind::Uuid, "uuid"),
    (KeyKind::Text, "text"),
];

impl StoredTable {
    fn new(id: TableId, schema: &Schema) -> StoredTable {
        let kind = KEY_KINDS.iter().find(|(kind, _)| *kind == schema.key_kind);
        let column = |column: &Column| StoredColumn {
            name: column.name.clone(),
            ty: column.ty.to_string(),
            nullable: column.nullable,
        };
        let numbers = schema.numbers.logged();
        let numbers =
            numbers.map(|known| StoredNumbers { table: known.table, columns: known.columns.clone() });
        StoredTable {
            id: id.0,
            name: schema.name.clone(),
            key: schema.key_column().name.clone(),
            key_kind: kind.expect("every kind has a name").1.to_owned(),
            columns: schema.columns.iter().map(column).collect(),
            numbers,
        }
    }

    fn schema(self) -> Result<Schema, String> {
        let name = self.name;
        let kind = KEY_KINDS.iter().find(|(_, text)| *text == self.key_kind);
        let (kind, _) =
            kind.ok_or_else(|| format!("table {name} has a key of unknown kind {}", self.key_kind))?;
        let key = self.columns.iter().position(|column| column.name == self.key);
        let key = key.ok_or_else(|| format!("table {name} has no column {}", self.key))?;
        let mut columns = Vec::with_capacity(self.columns.len());
        for StoredColumn { name: column, ty, nullable } in self.columns {
            let known =
                Type::parse(&ty).ok_or_else(|| format!("{name}.{column} has the unknown type {ty}"))?;
            columns.push(Column {
                name: column,
                ty: known,
                nullable,
                unique: false,
                indexed: false,
                fill: None,
            });
        }
        let mut schema = Schema::new(name, columns, key, *kind).map_err(|error| error.to_string())?;
        let numbers = self.numbers.map(|StoredNumbers { table, columns }| Numbering { table, columns });
        if numbers.as_ref().is_some_and(|numbers| numbers.columns.len() != schema.columns.len()) {
            return Err(format!("table {} has another number of columns than of their numbers", schema.name));
        }
        schema.numbers = Numbers::new(numbers);
        Ok(schema)
    }
}
