//! What the database said at the last start that could ask it, in `known.json` of the data folder: so that a
//! start finds its endpoints while the database is away.
//!
//! It is used when memory needs no database either: all tables are hot, none has `follow = false`, and there
//! is a checkpoint of them. A start that finds the database there asks it all, and writes the file anew. What
//! is not in the file, such as a statement that is new, is asked, and so waited for. What the database
//! enforces is written anew whenever that has changed.

use super::columns::StoredTable;
use crate::retry::{Trouble, until_answered};
use crate::start_error::StartError;
use forebay_config::{Config, model};
use forebay_database::{Enforced, Error, ResultColumn, ServerFacts, Statement, Store};
use forebay_value::{Schema, Type};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fs, io};

const FILE: &str = "known.json";
const VERSION: u32 = 2;

/// What the database said.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    version: u32,
    database: String,
    facts: Option<ServerFacts>,
    /// Which database it is, if that was asked.
    #[serde(default)]
    identity: Option<String>,
    enforced: BTreeMap<String, Enforced>,
    statements: BTreeMap<String, StoredStatement>,
    /// The tables whose columns the config leaves to the database.
    #[serde(default)]
    tables: BTreeMap<String, StoredTable>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredStatement {
    params: Vec<String>,
    param_types: Vec<Option<String>>,
    writes: bool,
    columns: Vec<(String, Option<String>)>,
}

/// What the database says, or said when it is away.
pub struct Known {
    /// At an earlier start; `None`: it is asked.
    earlier: Option<Said>,
    now: Mutex<Said>,
    /// The data folder, once what was said is kept there.
    dir: OnceLock<PathBuf>,
    trouble: Trouble,
}

impl Known {
    /// Nothing: the database is asked. `trouble` says what that waits for.
    pub(super) fn new(trouble: &Trouble) -> Known {
        Known { earlier: None, now: Mutex::default(), dir: OnceLock::new(), trouble: trouble.clone() }
    }

    /// What was kept, if a start can do with that.
    pub(super) fn read(config: &Config, trouble: &Trouble) -> Known {
        let is_embedded = matches!(config.memory.tier, model::Tier::Embedded);
        let dir = &config.memory.data_dir;
        if !is_embedded || !dir.join("checkpoint").exists() {
            return Known::new(trouble);
        }
        let is_enough = |said: &Said| {
            let is_known =
                |table: &model::TableConfig| table.columns.is_some() || said.tables.contains_key(&table.name);
            let mut tables = config.tables.iter();
            tables.all(|table| table.hot && table.others != model::Others::Unseen && is_known(table))
        };
        // One that cannot be read only means that the database is waited for.
        let earlier = kept(dir).filter(is_enough);
        Known { earlier, ..Known::new(trouble) }
    }

    /// The tables of the config, as it or the database had them; `None`: one of them is not known.
    pub(super) fn schemas(&self, config: &Config) -> Option<HashMap<String, Arc<Schema>>> {
        let said = self.earlier.as_ref()?;
        let schema = |table: &model::TableConfig| {
            let stored = || said.tables.get(&table.name)?.schema(&table.name);
            Some((table.name.clone(), Arc::new(table.columns.clone().or_else(stored)?)))
        };
        config.tables.iter().map(schema).collect()
    }

    pub(super) fn facts(&self) -> Option<ServerFacts> {
        self.earlier.as_ref().and_then(|said| said.facts)
    }

    /// Whether the database that is away is the one that said it.
    pub(super) fn is_of(&self, store: &Store) -> bool {
        self.earlier.as_ref().is_some_and(|said| said.database == store.describe_url())
    }

    /// The database is there: it is asked.
    pub(super) fn ask(&mut self) {
        self.earlier = None;
    }

    /// What the database enforces on a table.
    pub(super) async fn enforced(&self, store: &Store, schema: &Schema) -> Result<Enforced, StartError> {
        let known = self.earlier.as_ref().and_then(|said| said.enforced.get(&schema.name));
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let doing = format!("what is enforced on {}", schema.name);
        let enforced = until_answered(&self.trouble, &doing, || store.enforced(schema)).await;
        let enforced = enforced.map_err(StartError::from)?;
        self.now.lock().enforced.insert(schema.name.clone(), enforced.clone());
        Ok(enforced)
    }

    /// What tells the database from every other one.
    pub(super) async fn identity(&self, store: &Store) -> Result<String, StartError> {
        if let Some(known) = self.earlier.as_ref().and_then(|said| said.identity.clone()) {
            return Ok(known);
        }
        let identity =
            until_answered(&self.trouble, "asking which database it is", || store.identity()).await;
        let identity = identity.map_err(|error| {
            StartError(format!(
                "the shared cache: what this deployment is called there follows from its database, unless memory.name says it: {error}"
            ))
        })?;
        self.now.lock().identity = Some(identity.clone());
        Ok(identity)
    }

    /// A statement, checked by the database.
    ///
    /// # Errors
    /// Why it is none, as a sentence.
    pub(crate) async fn statement(&self, store: &Store, sql: &str) -> Result<Statement, String> {
        let known = self.earlier.as_ref().and_then(|said| said.statements.get(sql)?.statement(sql));
        if let Some(known) = known {
            return Ok(known);
        }
        let prepared = until_answered(&self.trouble, "preparing SQL", || store.prepare(sql)).await;
        let statement = prepared.map_err(|error: Error| error.to_string())?;
        self.now.lock().statements.insert(sql.to_owned(), StoredStatement::of(&statement));
        Ok(statement)
    }

    /// Keeps what the database said for the next start.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn write(
        &self,
        config: &Config,
        store: &Store,
        schemas: &HashMap<String, Arc<Schema>>,
    ) -> io::Result<()> {
        let dir = self.dir.get_or_init(|| config.memory.data_dir.clone());
        if self.earlier.is_some() {
            return Ok(());
        }
        let mut said = self.now.lock();
        for table in config.tables.iter().filter(|table| table.columns.is_none()) {
            if let Some(schema) = schemas.get(&table.name) {
                said.tables.insert(table.name.clone(), StoredTable::of(schema));
            }
        }
        (said.version, said.database, said.facts) = (VERSION, store.describe_url(), store.facts());
        fs::create_dir_all(dir)?;
        keep(dir, &said)
    }

    /// The database enforces something else on a table now: the next start without it judges by that.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn learn(&self, table: &str, enforced: &Enforced) -> io::Result<()> {
        // Locked to the end: the file is read and written by one at a time.
        let mut now = self.now.lock();
        now.enforced.insert(table.to_owned(), enforced.clone());
        let Some((dir, mut said)) = self.dir.get().and_then(|dir| Some((dir, kept(dir)?))) else {
            return Ok(());
        };
        said.enforced.insert(table.to_owned(), enforced.clone());
        keep(dir, &said)
    }
}

/// What a data folder has; `None`: nothing that this version can read.
fn kept(dir: &Path) -> Option<Said> {
    let said: Said = serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()?;
    (said.version == VERSION).then_some(said)
}

fn keep(dir: &Path, said: &Said) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(said).map_err(io::Error::other)?;
    let new = dir.join("known.json.new");
    fs::write(&new, text)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(new, dir.join(FILE))
}

impl StoredStatement {
    fn of(statement: &Statement) -> StoredStatement {
        let text = |ty: &Option<Type>| ty.map(|ty| ty.to_string());
        let columns = statement.columns.iter().map(|column| (column.name.clone(), text(&column.ty)));
        StoredStatement {
            params: statement.params.clone(),
            param_types: statement.param_types.iter().map(text).collect(),
            writes: statement.writes,
            columns: columns.collect(),
        }
    }

    fn statement(&self, sql: &str) -> Option<Statement> {
        let ty = |text: &Option<String>| match text {
            Some(text) => Type::parse(text).map(Some),
            None => Some(None),
        };
        let columns = self.columns.iter();
        let columns = columns.map(|(name, text)| Some(ResultColumn { name: name.clone(), ty: ty(text)? }));
        Some(Statement {
            sql: sql.into(),
            params: self.params.clone(),
            writes: self.writes,
            param_types: self.param_types.iter().map(ty).collect::<Option<_>>()?,
            alone: false,
            columns: columns.collect::<Option<Vec<_>>>()?.into(),
        })
    }
}
