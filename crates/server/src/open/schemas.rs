//! Compares the config's tables with the database's: a missing table is created, columns that the config
//! omits are read, and declared columns are compared.

use super::known::DatabaseKnowledge;
use crate::retry::{RetryReason, retry_while_unavailable};
use crate::start_error::StartError;
use forebay_config::{Config, model};
use forebay_database::{Error, Store};
use forebay_table::{Others, TableSpec};
use forebay_terminal::warn;
use forebay_value::{Column, Need, Numbering, Numbers, Schema, Type};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The tables that exist in the database, with the config's columns or else the database's, and why others
/// cannot be hot tables. Creates nothing.
///
/// # Errors
/// When the database cannot be read.
pub(super) async fn tables_there(
    config: &Config,
    store: &Store,
) -> Result<(HashMap<String, Arc<Schema>>, Vec<StartError>), StartError> {
    let (mut schemas, mut refused) = (HashMap::new(), Vec::new());
    for table in config.tables.iter().filter(|table| table.hot) {
        let at = |what: StartError| {
            StartError::from(format!("{}:{}: table {}: {what}", config.source, table.line, table.name))
        };
        let stored = match store.describe(&table.name).await {
            Ok(Some(stored)) => stored,
            Ok(None) => continue,
            Err(error) if error.may_retry() => return Err(at(error.into())),
            Err(error) => {
                refused.push(at(error.into()));
                continue;
            }
        };
        let schema = match &table.columns {
            Some(wanted) => compare(wanted, &stored).map(|()| adopted(wanted, &stored)),
            None => Ok(stored),
        };
        match schema {
            Ok(schema) => drop(schemas.insert(table.name.clone(), Arc::new(schema))),
            Err(error) => refused.push(at(error)),
        }
    }
    Ok((schemas, refused))
}

/// Creates the tables that the database lacks, and reads those whose columns the config leaves to the
/// database. Returns also which of the latter are missing now, are no hot tables any more, or lack a column
/// that they cannot be served without: they have the columns that an earlier start has read.
pub(super) async fn prepare_tables(
    config: &Config,
    store: &Store,
    known: &DatabaseKnowledge,
    trouble: &RetryReason,
) -> Result<(HashMap<String, Arc<Schema>>, HashSet<String>), StartError> {
    let (mut schemas, mut lost) = (HashMap::new(), HashSet::new());
    for table in &config.tables {
        let prepared = prepare_table(config, table, store, known, trouble).await?;
        if let Some(why) = prepared.lost {
            warn!("table {} is served when it is as it was again: {why}", table.name);
            lost.insert(table.name.clone());
        }
        schemas.insert(table.name.clone(), Arc::new(prepared.schema));
    }
    Ok((schemas, lost))
}

/// A table of the config, ready to be opened.
pub(super) struct Prepared {
    schema: Schema,
    /// What the database lacks of it now: then it has the columns that an earlier start has read.
    pub lost: Option<String>,
}

/// As [`prepare_tables`], of one table.
pub(super) async fn prepare_table(
    config: &Config,
    table: &model::TableConfig,
    store: &Store,
    known: &DatabaseKnowledge,
    trouble: &RetryReason,
) -> Result<Prepared, StartError> {
    let at = |what: StartError| {
        StartError::from(format!("{}:{}: table {}: {what}", config.source, table.line, table.name))
    };
    let doing = format!("table {}", table.name);
    let found = retry_while_unavailable(trouble, &doing, || async {
        let stored = store.describe(&table.name).await?;
        let (Some(wanted), None) = (&table.columns, &stored) else { return Ok(stored) };
        match store.create_table(wanted).await {
            Ok(()) => Ok(None),
            // Another server that starts may have created it meanwhile.
            Err(error) => store.describe(&table.name).await?.map_or(Err(error), |stored| Ok(Some(stored))),
        }
    });
    let stored = found.await;
    let before = known.schema_before(table, store);
    let missing = before.as_ref().and_then(|before| missing(config, table, before, &stored));
    if let (Some(before), Some(why)) = (&before, missing) {
        return Ok(Prepared { schema: before.clone(), lost: Some(why) });
    }
    let stored = stored.map_err(|error| at(error.into()))?;
    let stored = stored.map(|stored| with_named(config, stored, before.as_ref()));
    let schema = match (&table.columns, stored) {
        (Some(wanted), None) => wanted.clone(),
        (Some(wanted), Some(stored)) => {
            compare(wanted, &stored).map_err(at)?;
            adopted(wanted, &stored)
        }
        (None, Some(stored)) => stored,
        (None, None) => {
            let url = store.describe_url();
            return Err(at(format!("is not in {url}; give its columns here to have it made").into()));
        }
    };
    Ok(Prepared { schema, lost: None })
}

/// What the database lacks of a table that an earlier start has served, and cannot be served without.
fn missing(
    config: &Config,
    table: &model::TableConfig,
    before: &Schema,
    stored: &Result<Option<Schema>, Error>,
) -> Option<String> {
    let stored = match stored {
        Ok(Some(stored)) => stored,
        Ok(None) => return Some("it is not in the database".into()),
        Err(error) => return Some(error.to_string()),
    };
    let is_needed = |name: &str| match config.need(&table.name, name) {
        _ if name == before.key_column().name => true,
        Need::Table => true,
        // A schema has no two names that differ in case alone.
        Need::Endpoints => {
            table.columns.is_some()
                || stored.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name))
        }
        Need::Nothing => false,
    };
    let mut gone = before.columns.iter().filter(|column| stored.position(&column.name).is_none());
    let gone = gone.find(|column| is_needed(&column.name))?;
    Some(format!("it has no column {}, which the config names", gone.name))
}

/// The table's columns, and those that an earlier start has read and endpoints name.
fn with_named(config: &Config, stored: Schema, before: Option<&Schema>) -> Schema {
    let columns = before.into_iter().flat_map(|before| before.columns.iter().enumerate());
    let is_gone = |(_, column): &(usize, &Column)| {
        stored.position(&column.name).is_none() && config.need(&stored.name, &column.name) == Need::Endpoints
    };
    let gone = columns.filter(is_gone).map(|(place, column)| (place, column.clone())).collect();
    stored.with_gone(gone)
}

/// The declared columns, each that has a type of the database's own with that type.
fn adopted(wanted: &Schema, stored: &Schema) -> Schema {
    let mut schema = wanted.clone();
    for column in &mut schema.columns {
        let found = stored.columns.iter().find(|found| found.name == column.name);
        if let Some(found) = found.filter(|found| is_carried_as(column.ty, found.ty)) {
            column.ty = found.ty;
        }
    }
    schema.numbers = numbers_of(&schema, stored);
    schema
}

/// The numbers that the database has for a schema's columns.
fn numbers_of(schema: &Schema, stored: &Schema) -> Numbers {
    let Some(numbers) = stored.numbers.logged() else { return Numbers::default() };
    let number = |column: &Column| stored.position(&column.name).map_or(0, |place| numbers.columns[place]);
    let columns = schema.columns.iter().map(number).collect();
    Numbers::new(Some(Numbering { table: numbers.table, columns }))
}

/// Whether a type of the database's own is declared by the nearest word that a config has.
fn is_carried_as(declared: Type, found: Type) -> bool {
    matches!((declared, found), (Type::Timestamp, Type::LocalTimestamp) | (Type::Text { .. }, Type::AsText))
}

/// Compares a table in the database with the config's declaration.
fn compare(wanted: &Schema, stored: &Schema) -> Result<(), StartError> {
    for column in &wanted.columns {
        let Some(found) = stored.columns.iter().find(|found| found.name == column.name) else {
            return Err(format!("the database's table has no column `{}`", column.name).into());
        };
        // Bounds are checked on input; the database need not enforce them.
        let same_type = found.ty.unbounded() == column.ty.unbounded() || is_carried_as(column.ty, found.ty);
        if !same_type {
            return Err(format!(
                "column `{}` is {} in the database, {} here",
                column.name, found.ty, column.ty
            )
            .into());
        }
    }
    let key = &wanted.key_column().name;
    if stored.key_column().name != *key {
        return Err(format!("the key is `{}` in the database, `{key}` here", stored.key_column().name).into());
    }
    match stored
        .columns
        .iter()
        .find(|found| wanted.position(&found.name).is_none() && !found.nullable && found.fill.is_none())
    {
        Some(column) => {
            Err(format!("the database's column `{}` is missing here and must not be null", column.name)
                .into())
        }
        None => Ok(()),
    }
}

/// Who else writes to a table, as the table crate's type.
fn others(table: &model::TableConfig) -> Others {
    match table.others {
        model::Others::None => Others::None,
        model::Others::Unseen => Others::Unseen,
        model::Others::Followed => Others::Followed,
    }
}

/// Whether some endpoint lists a table: then the table is ordered.
pub fn lists(config: &Config, table: &str) -> bool {
    let is_list =
        |action: &model::Action| matches!(action, model::Action::List(list) if list.table == *table);
    config.endpoints.iter().any(|endpoint| match &endpoint.action {
        model::Action::AnyOf(actions) => actions.iter().any(is_list),
        action => is_list(action),
    })
}

/// Notes what in the config needs which column, for the case that one is dropped.
pub fn note_needs(config: &Config, schema: &Schema) {
    let of_config = config.table(&schema.name);
    let is_read = of_config.is_some_and(|table| table.hot && table.columns.is_none());
    let is_followed = of_config.is_some_and(|table| table.others == model::Others::Followed);
    for (index, column) in schema.columns.iter().enumerate() {
        let need = match is_read && index != schema.key {
            true => config.need(&schema.name, &column.name),
            false => Need::Table,
        };
        // Only a follower sees that a column is back.
        let is_known_back = is_followed || need == Need::Nothing;
        schema.presence.set_need(index, if is_known_back { need } else { Need::Table });
    }
}

/// The tables that the memory tier stores.
pub(super) fn hot_specs(config: &Config, schemas: &HashMap<String, Arc<Schema>>) -> Vec<TableSpec> {
    schemas.values().for_each(|schema| note_needs(config, schema));
    let hot = config.tables.iter().filter(|table| table.hot && schemas.contains_key(&table.name));
    hot.map(|table| TableSpec {
        schema: Schema::clone(&schemas[&table.name]),
        others: others(table),
        ordered: lists(config, &table.name),
        rules: Arc::default(),
    })
    .collect()
}
