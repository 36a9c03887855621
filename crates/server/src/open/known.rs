//! What an earlier start read from the database, stored in `known.json` of the data folder, so that a start
//! can compile its endpoints while the database is unreachable.
//!
//! It is used when memory needs no database either: all tables are hot, none has `follow = false`, and a
//! checkpoint of them exists. A start that reaches the database reads everything from it, and rewrites the
//! file. What the file lacks, such as a new statement, is read from the database, so the start waits for it.
//! The enforced constraints are rewritten whenever they change.
//!
//! It also describes a table that the database does not have at present, or not with the columns that the
//! config names, in the middle of a migration: the start goes on, and the table alone is not served.

use super::columns::StoredTable;
use crate::retry::{RetryReason, retry_while_unavailable};
use crate::start_error::StartError;
use forebay_config::{Config, model};
use forebay_database::{Enforced, Error, ResultColumn, ServerFacts, Statement, Store};
use forebay_terminal::warn;
use forebay_value::{Schema, Type};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fs, io};

const FILE: &str = "known.json";
const VERSION: u32 = 2;

/// What was read from the database.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKnowledge {
    version: u32,
    database: String,
    facts: Option<ServerFacts>,
    /// The identity of the database, if it was read.
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

/// What was read from the database, now or at an earlier start.
pub struct DatabaseKnowledge {
    /// What an earlier start read.
    earlier: Option<StoredKnowledge>,
    /// Whether the database is read; what an earlier start read stands in for what it lacks.
    is_asked: bool,
    /// The tables that have the columns that an earlier start read, because the database's do not fit.
    lost: HashSet<String>,
    now: Mutex<StoredKnowledge>,
    /// The data folder, from the first write of the file on.
    dir: OnceLock<PathBuf>,
    trouble: RetryReason,
}

impl DatabaseKnowledge {
    /// Knows nothing: everything is read from the database. `trouble` records why a read waits.
    pub(super) fn new(trouble: &RetryReason) -> DatabaseKnowledge {
        DatabaseKnowledge {
            earlier: None,
            is_asked: true,
            lost: HashSet::new(),
            now: Mutex::default(),
            dir: OnceLock::new(),
            trouble: trouble.clone(),
        }
    }

    /// Reads the file, of an embedded tier. Without a checkpoint the database is read as well.
    pub(super) fn read(config: &Config, trouble: &RetryReason) -> DatabaseKnowledge {
        let is_embedded = matches!(config.memory.tier, model::Tier::Embedded);
        let dir = &config.memory.data_dir;
        // An unreadable file only means that the start waits for the database.
        let earlier = if is_embedded { kept(dir) } else { None };
        // Memory needs the database then, but a migration may have dropped what the config names.
        let is_asked = earlier.is_none() || !dir.join("checkpoint").exists();
        DatabaseKnowledge { is_asked, earlier, ..DatabaseKnowledge::new(trouble) }
    }

    /// The schemas of the config's tables, from the config or the file; `None`: memory needs the database, or
    /// one of them is unknown.
    pub(super) fn schemas(&self, config: &Config) -> Option<HashMap<String, Arc<Schema>>> {
        let said = self.unasked()?;
        let schema = |table: &model::TableConfig| {
            let stored = || {
                let stored = said.tables.get(&table.name)?;
                stored.without_gone(stored.schema(&table.name)?, |column| config.need(&table.name, column))
            };
            let in_memory = table.hot && table.others != model::Others::Unseen;
            let schema = in_memory.then(|| table.columns.clone().or_else(stored)).flatten()?;
            Some((table.name.clone(), Arc::new(schema)))
        };
        config.tables.iter().map(schema).collect()
    }

    /// What an earlier start read, while the database is not read.
    fn unasked(&self) -> Option<&StoredKnowledge> {
        self.earlier.as_ref().filter(|_| !self.is_asked)
    }

    pub(super) fn facts(&self) -> Option<ServerFacts> {
        self.unasked().and_then(|said| said.facts)
    }

    /// Whether the file is about this database.
    pub(super) fn is_of(&self, store: &Store) -> bool {
        self.earlier.as_ref().is_some_and(|said| said.database == store.describe_url())
    }

    /// The columns that a followed table had when an earlier start of this config read it.
    pub(super) fn schema_before(&self, table: &model::TableConfig, store: &Store) -> Option<Schema> {
        let said = self.earlier.as_ref().filter(|_| self.is_of(store))?;
        (table.others == model::Others::Followed)
            .then(|| said.tables.get(&table.name)?.schema(&table.name))
            .flatten()
    }

    /// The database is reachable and is read, except for these tables.
    pub(super) fn ask(&mut self, store: &Store, lost: HashSet<String>) {
        (self.is_asked, self.lost) = (true, lost);
        if !self.is_of(store) {
            self.earlier = None;
        }
    }

    /// The constraints that the database enforces on a table.
    pub(super) async fn enforced(&self, store: &Store, schema: &Schema) -> Result<Enforced, StartError> {
        let is_read = self.is_asked && !self.lost.contains(&schema.name);
        let known = self.earlier.as_ref().filter(|_| !is_read);
        if let Some(known) = known.and_then(|said| said.enforced.get(&schema.name)) {
            self.now.lock().enforced.insert(schema.name.clone(), known.clone());
            return Ok(known.clone());
        }
        let doing = format!("what is enforced on {}", schema.name);
        let enforced = retry_while_unavailable(&self.trouble, &doing, || store.enforced(schema)).await?;
        let enforced = enforced.unwrap_or_default();
        self.now.lock().enforced.insert(schema.name.clone(), enforced.clone());
        Ok(enforced)
    }

    /// The identity of the database, different for every database.
    pub(super) async fn identity(&self, store: &Store) -> Result<String, StartError> {
        if let Some(known) = self.unasked().and_then(|said| said.identity.clone()) {
            return Ok(known);
        }
        let identity =
            retry_while_unavailable(&self.trouble, "asking which database it is", || store.identity()).await;
        let identity = identity.map_err(|error| {
            StartError::from(format!(
                "the shared cache: what this deployment is called there follows from its database, unless memory.name says it: {error}"
            ))
        })?;
        self.now.lock().identity = Some(identity.clone());
        Ok(identity)
    }

    /// A statement, prepared by the database or read from the file. One that the database has prepared before
    /// and cannot prepare now, in the middle of a migration, is as it was: its requests alone fail.
    ///
    /// # Errors
    /// When the database cannot prepare the statement.
    pub(crate) async fn statement(&self, store: &Store, sql: &str) -> Result<Statement, Error> {
        let stored = |said: &StoredKnowledge| said.statements.get(sql)?.statement(sql);
        if let Some(known) = self.unasked().and_then(stored) {
            return Ok(known);
        }
        let prepared = retry_while_unavailable(&self.trouble, "preparing SQL", || store.prepare(sql)).await;
        let statement = prepared.or_else(|error| {
            let known = stored(&self.now.lock()).or_else(|| self.earlier.as_ref().and_then(stored));
            let known = known.ok_or_else(|| error.clone())?;
            warn!("`{sql}` fails until the database understands it again: {error}");
            Ok::<_, Error>(known)
        })?;
        self.now.lock().statements.insert(sql.to_owned(), StoredStatement::of(&statement));
        Ok(statement)
    }

    /// Writes what was read from the database to the file, for the next start.
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
        if !self.is_asked {
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

    /// Stores the changed constraints of a table, and which columns it lacks, in the file, for the next start
    /// without the database.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn learn(&self, schema: &Schema, enforced: &Enforced) -> io::Result<()> {
        let table = &schema.name;
        // Locked until the end, so that only one thread reads and rewrites the file.
        let mut now = self.now.lock();
        now.enforced.insert(table.clone(), enforced.clone());
        let Some((dir, mut said)) = self.dir.get().and_then(|dir| Some((dir, kept(dir)?))) else {
            return Ok(());
        };
        said.enforced.insert(table.clone(), enforced.clone());
        if let Some(stored) = said.tables.get_mut(table) {
            stored.gone = schema.gone();
        }
        keep(dir, &said)
    }
}

/// Reads the file in a data folder; `None`: this version cannot read it.
fn kept(dir: &Path) -> Option<StoredKnowledge> {
    let said: StoredKnowledge = serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()?;
    (said.version == VERSION).then_some(said)
}

fn keep(dir: &Path, said: &StoredKnowledge) -> io::Result<()> {
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
