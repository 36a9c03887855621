//! Opens what a config names: database, hot tables, memory tier; in the order in which each can check the
//! next.

mod columns;
mod enforced;
mod known;
mod readable;
mod schemas;

use crate::query_plans;
use crate::retry::{RetryReason, retry_while_unavailable};
use crate::start_error::StartError;
use crate::tier::Tier;
use forebay_config::{Config, model};
use forebay_database::{Follow, Options as StoreOptions, Store};
use forebay_drain::NewDatabase;
use forebay_table::{Others, TableSpec, name_of};
use forebay_value::Schema;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub use enforced::Watched;
pub use known::DatabaseKnowledge;
pub use readable::readable;
pub use schemas::{lists, note_needs};

/// Database and memory tier of one config, open.
pub struct OpenStores {
    /// The database.
    pub store: Store,
    /// The memory tier, not loaded yet.
    pub tier: Tier,
    /// Every table of the config.
    pub schemas: HashMap<String, Arc<Schema>>,
    /// The constraints that the database enforces on the hot tables.
    pub enforced: Watched,
    /// What else was read from the database.
    pub known: DatabaseKnowledge,
    /// The name of this deployment on the Redis or Valkey of `cache.shared`; empty without one.
    pub deployment: String,
}

/// What to do when the database is unreachable at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// Retry until it responds: for a server that is started before its database.
    Wait,
    /// Fail: for a command that a person has typed.
    Fail,
}

/// Opens only the database, and reads every table of the config.
pub async fn database(
    config: &Config,
    away: Unreachable,
) -> Result<(Store, HashMap<String, Arc<Schema>>), StartError> {
    let trouble = RetryReason::default();
    let store = open_store(config, away, &StoreOptions::default(), &trouble).await?;
    let known = DatabaseKnowledge::new(&trouble);
    let (schemas, _) = schemas::prepare_tables(config, &store, &known, &trouble).await?;
    Ok((store, schemas))
}

async fn open_store(
    config: &Config,
    away: Unreachable,
    options: &StoreOptions,
    trouble: &RetryReason,
) -> Result<Store, StartError> {
    let open = || Store::open(&config.database.url, options.clone());
    // A file that cannot be opened needs a person; a server that is unreachable may return by itself.
    let is_server = config.database.dialect() == model::Dialect::Postgres;
    let opened = if is_server && away == Unreachable::Wait {
        retry_while_unavailable(trouble, "opening the database", || async { open() }).await
    } else {
        open()
    };
    opened.map_err(StartError::from)
}

/// Opens the database for a start: an unreachable database is not waited for when all that would be read from
/// it is known.
async fn database_or_known(
    config: &Config,
    new_database: NewDatabase,
    away: Unreachable,
    trouble: &RetryReason,
) -> Result<(Store, HashMap<String, Arc<Schema>>, DatabaseKnowledge), StartError> {
    let mut known = match new_database {
        NewDatabase::Refuse => DatabaseKnowledge::read(config, trouble),
        NewDatabase::Accept => DatabaseKnowledge::new(trouble),
    };
    // A command reads the database, but for a table that is not there at present.
    let facts = known.facts().filter(|_| away == Unreachable::Wait);
    let options = StoreOptions { known: facts, ..StoreOptions::default() };
    let mut store = open_store(config, away, &options, trouble).await?;
    if store.was_away()
        && known.is_of(&store)
        && let Some(schemas) = known.schemas(config)
    {
        return Ok((store, schemas, known));
    }
    if store.was_away() {
        store = open_store(config, away, &StoreOptions::default(), trouble).await?;
    }
    let (schemas, lost) = schemas::prepare_tables(config, &store, &known, trouble).await?;
    known.ask(&store, lost);
    Ok((store, schemas, known))
}

/// What a check of a config finds in its database.
#[derive(Default)]
pub struct Findings {
    /// Lines about the hot tables: the constraints that only the database can check, how the tables are
    /// followed, and the statements whose cost grows with a table.
    pub lines: Vec<String>,
    /// Why a start would end with an error.
    pub refused: Vec<StartError>,
}

/// Looks for what concerns a config in its database. Creates nothing.
///
/// # Errors
/// When the database cannot be read.
pub async fn findings(config: &Config) -> Result<Findings, StartError> {
    let file =
        config.database.url.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
    if file.is_some_and(|path| !std::path::Path::new(path).exists()) {
        return Ok(Findings::default());
    }
    let store = Store::open(&config.database.url, StoreOptions::default())?;
    let mut refused = query_plans::refused(config, &store).await;
    let (schemas, refused_tables) = schemas::tables_there(config, &store).await?;
    refused.extend(refused_tables);
    let mut specs = schemas::hot_specs(config, &schemas);
    let mut lines =
        Watched::begin(config, &store, &DatabaseKnowledge::new(&RetryReason::default()), &mut specs)
            .await?
            .lines();
    let followed = following(config, &store, &specs).await?;
    lines.extend(followed.lines);
    refused.extend(followed.refused);
    lines.extend(query_plans::of_config(config, &store).await);
    Ok(Findings { lines, refused })
}

/// How the hot tables are followed, and the replication slots in the database that no server uses.
async fn following(config: &Config, store: &Store, specs: &[TableSpec]) -> Result<Findings, StartError> {
    let follow = |spec: &TableSpec| {
        let tags = config
            .tables
            .iter()
            .filter(|table| table.name == spec.schema.name)
            .flat_map(|table| &table.invalidates);
        let mut in_tags = HashSet::new();
        tags.for_each(|tag| {
            tag.each_param(&mut |param| {
                in_tags.insert(param.to_owned());
            });
        });
        let columns = spec.schema.columns.iter().enumerate();
        let old = columns.filter(|(_, column)| in_tags.contains(&column.name)).map(|(place, _)| place);
        Follow { schema: Arc::new(spec.schema.clone()), old: old.collect(), own: !in_tags.is_empty() }
    };
    let followed = specs.iter().filter(|spec| spec.others == Others::Followed);
    let mut found = Findings::default();
    let mut follows = Vec::new();
    for follow in followed.map(follow) {
        match store.cannot_follow(follow.clone()).await? {
            Some(why) => found.refused.push(why.into()),
            None => follows.push(follow),
        }
    }
    if !follows.is_empty() {
        let names: Vec<_> = follows.iter().map(|follow| follow.schema.name.clone()).collect();
        let reporting_by = store.could_follow(follows).await?;
        found
            .lines
            .push(format!("{}: other writers' changes are reported by {reporting_by}", names.join(", ")));
    }
    for slot in store.idle_slots().await? {
        found.lines.push(format!("no server uses replication slot {slot}"));
    }
    Ok(found)
}

/// The schemas that are known: those that the config declares, and those that it leaves to the database.
/// Creates nothing, and reads only the latter from the database.
///
/// # Errors
/// When the database cannot be read.
pub async fn known_schemas(config: &Config) -> Result<HashMap<String, Arc<Schema>>, StartError> {
    let declared = config.tables.iter().filter_map(|table| {
        let columns = table.columns.clone()?;
        Some((table.name.clone(), Arc::new(columns)))
    });
    let mut schemas: HashMap<_, _> = declared.collect();
    if config.tables.iter().any(|table| table.columns.is_none()) {
        let store = Store::open(&config.database.url, StoreOptions::default())?;
        let (there, refused) = schemas::tables_there(config, &store).await?;
        if let Some(error) = refused.into_iter().next() {
            return Err(error);
        }
        schemas.extend(there);
    }
    Ok(schemas)
}

/// Opens everything. Nothing is served or drained yet.
pub async fn open(
    config: &Config,
    new_database: NewDatabase,
    away: Unreachable,
) -> Result<OpenStores, StartError> {
    open_telling(config, new_database, away, RetryReason::default()).await
}

/// Like [`open`]; `trouble` records why it waits.
pub(crate) async fn open_telling(
    config: &Config,
    new_database: NewDatabase,
    away: Unreachable,
    trouble: RetryReason,
) -> Result<OpenStores, StartError> {
    let (store, schemas, known) = database_or_known(config, new_database, away, &trouble).await?;
    let mut specs = schemas::hot_specs(config, &schemas);
    let mut enforced = Watched::begin(config, &store, &known, &mut specs).await?;
    let deployment = deployment(config, &store, &known).await?;
    let tier = Tier::open(config, specs, store.clone(), new_database, &trouble).await?;
    enforced.note_served(&tier.tables());
    Ok(OpenStores { store, tier, schemas, enforced, known, deployment })
}

/// The name of the deployment on Redis or Valkey servers that other deployments use too.
async fn deployment(config: &Config, store: &Store, known: &DatabaseKnowledge) -> Result<String, StartError> {
    match &config.memory.name {
        _ if config.cache.shared.is_none() => Ok(String::new()),
        Some(name) => Ok(name.clone()),
        None => Ok(name_of(&known.identity(store).await?).to_owned()),
    }
}
