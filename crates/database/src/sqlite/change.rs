//! One change as a statement: its SQL, prepared once a batch, and whether it met its row.
//!
//! A refused statement undoes only itself (SQLite's ABORT); `apply` decides what then happens to its batch.

use super::errors::map;
use super::schema::quoted;
use super::time_form::TimeForm;
use super::{times, types};
use crate::{Error, Kind, Op};
use forebay_value::{Row, Schema, Value, ValueRef};
use rusqlite::{CachedStatement, Connection};

/// The statements of one table. Each is looked up once a batch: a look-up for each row would cost more than
/// binding the row.
pub(super) struct TableStatements<'a> {
    connection: &'a Connection,
    schema: &'a Schema,
    /// The forms of the columns' times.
    forms: Vec<TimeForm>,
    insert: OnFirstUse<'a>,
    put: OnFirstUse<'a>,
    delete: OnFirstUse<'a>,
    is_there: OnFirstUse<'a>,
    /// By the columns that they set.
    updates: Vec<(Vec<usize>, OnFirstUse<'a>)>,
    /// By the column that they add to.
    increments: Vec<(usize, OnFirstUse<'a>)>,
}

/// A value, and the form in which a time is written.
type Bound<'v> = (ValueRef<'v>, TimeForm);

/// A value that is no time.
fn plain(value: ValueRef<'_>) -> Bound<'_> {
    (value, TimeForm::default())
}

/// A statement that is prepared at its first use.
struct OnFirstUse<'a> {
    sql: String,
    prepared: Option<CachedStatement<'a>>,
}

impl<'a> OnFirstUse<'a> {
    fn new(sql: String) -> OnFirstUse<'a> {
        OnFirstUse { sql, prepared: None }
    }

    fn bound<'v>(
        &mut self,
        connection: &'a Connection,
        values: impl Iterator<Item = Bound<'v>>,
    ) -> Result<&mut CachedStatement<'a>, Error> {
        let prepared = match self.prepared.take() {
            Some(prepared) => prepared,
            None => connection.prepare_cached(&self.sql).map_err(map)?,
        };
        let statement = self.prepared.insert(prepared);
        for (index, (value, form)) in values.enumerate() {
            types::bind_as(statement, index + 1, value, form).map_err(map)?;
        }
        Ok(statement)
    }

    /// Executes the statement; returns how many rows it changed.
    fn execute<'v>(
        &mut self,
        connection: &'a Connection,
        values: impl Iterator<Item = Bound<'v>>,
    ) -> Result<usize, Error> {
        self.bound(connection, values)?.raw_execute().map_err(map)
    }
}

impl<'a> TableStatements<'a> {
    pub(super) fn new(connection: &'a Connection, schema: &'a Schema) -> Result<TableStatements<'a>, Error> {
        let forms = times::of_schema(connection, schema)?;
        let table = quoted(&schema.name);
        let key = quoted(&schema.key_column().name);
        let names: Vec<String> = schema.columns.iter().map(|column| quoted(&column.name)).collect();
        let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
        let insert = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), places.join(", "));
        let sets: Vec<String> = (names.iter().enumerate())
            .filter(|(index, _)| *index != schema.key)
            .map(|(_, name)| format!("{name} = excluded.{name}"))
            .collect();
        let action =
            if sets.is_empty() { "NOTHING".into() } else { format!("UPDATE SET {}", sets.join(", ")) };
        let put = format!("{insert} ON CONFLICT ({key}) DO {action}");
        Ok(TableStatements {
            connection,
            schema,
            forms,
            insert: OnFirstUse::new(insert),
            put: OnFirstUse::new(put),
            delete: OnFirstUse::new(format!("DELETE FROM {table} WHERE {key} = ?1")),
            is_there: OnFirstUse::new(format!("SELECT 1 FROM {table} WHERE {key} = ?1")),
            updates: Vec::new(),
            increments: Vec::new(),
        })
    }

    pub(super) fn insert(&mut self, row: &Row) -> Result<(), Error> {
        let values = row.as_ref().values(self.schema).zip(self.forms.iter().copied());
        self.insert.execute(self.connection, values).map(drop)
    }

    /// Whether the change had its effect; an update or increment without its row does nothing. A change that
    /// a trigger ignores without an error is refused.
    pub(super) fn execute(&mut self, op: &Op) -> Result<bool, Error> {
        let connection = self.connection;
        match op {
            Op::Insert(row) | Op::Put(row) => {
                let is_insert = matches!(op, Op::Insert(_));
                let statement = if is_insert { &mut self.insert } else { &mut self.put };
                let changed = statement
                    .execute(connection, row.as_ref().values(self.schema).zip(self.forms.iter().copied()))?;
                let wanted = || row.as_ref().values(self.schema).enumerate();
                if changed == 0
                    && (is_insert || !self.is_already_applied(row.as_ref().key(self.schema), wanted())?)
                {
                    return Err(skipped());
                }
            }
            Op::Delete(key) => {
                let deleted = self.delete.execute(connection, std::iter::once(plain(key.as_ref())))?;
                if deleted == 0 && self.is_there(key.as_ref())? {
                    return Err(skipped());
                }
            }
            Op::Update { key, columns } => return self.update(key, columns),
            Op::Increment { key, column, delta } => return self.increment(key, *column, *delta),
        }
        Ok(true)
    }

    fn is_there(&mut self, key: ValueRef<'_>) -> Result<bool, Error> {
        let found = self.is_there.bound(self.connection, std::iter::once(plain(key)))?;
        Ok(found.raw_query().next().map_err(map)?.is_some())
    }

    fn update(&mut self, key: &Value, columns: &[(usize, Value)]) -> Result<bool, Error> {
        let is_alike = |of: &[usize]| of.iter().eq(columns.iter().map(|(index, _)| index));
        let at = match self.updates.iter().position(|(of, _)| is_alike(of)) {
            Some(at) => at,
            None => {
                let of: Vec<usize> = columns.iter().map(|(index, _)| *index).collect();
                let statement = OnFirstUse::new(update_sql(self.schema, &of));
                self.updates.push((of, statement));
                self.updates.len() - 1
            }
        };
        let set = columns.iter().map(|(index, value)| (value.as_ref(), self.forms[*index]));
        let values = std::iter::once(plain(key.as_ref())).chain(set);
        match self.updates[at].1.execute(self.connection, values)? {
            0 if !self.is_there(key.as_ref())? => Ok(false),
            0 if !self.is_already_applied(
                key.as_ref(),
                columns.iter().map(|(index, value)| (*index, value.as_ref())),
            )? =>
            {
                Err(skipped())
            }
            _ => Ok(true),
        }
    }

    /// Whether the row exists and its columns have these values: then there was nothing to do.
    fn is_already_applied<'v>(
        &self,
        key: ValueRef<'v>,
        wanted: impl Iterator<Item = (usize, ValueRef<'v>)>,
    ) -> Result<bool, Error> {
        let wanted: Vec<_> = wanted.collect();
        let is_same = |(place, (index, _)): (usize, &(usize, ValueRef<'_>))| {
            format!(" AND {} IS ?{}", quoted(&self.schema.columns[*index].name), place + 2)
        };
        let all_same: String = wanted.iter().enumerate().map(is_same).collect();
        let (table, name) = (quoted(&self.schema.name), quoted(&self.schema.key_column().name));
        let mut same = OnFirstUse::new(format!("SELECT 1 FROM {table} WHERE {name} = ?1{all_same}"));
        let wanted = wanted.into_iter().map(|(index, value)| (value, self.forms[index]));
        let values = std::iter::once(plain(key)).chain(wanted);
        let mut found = same.bound(self.connection, values)?.raw_query();
        Ok(found.next().map_err(map)?.is_some())
    }

    fn increment(&mut self, key: &Value, column: usize, delta: i64) -> Result<bool, Error> {
        let at = match self.increments.iter().position(|(of, _)| *of == column) {
            Some(at) => at,
            None => {
                self.increments.push((column, OnFirstUse::new(increment_sql(self.schema, column))));
                self.increments.len() - 1
            }
        };
        let values = [key.as_ref(), ValueRef::Bigint(delta)].into_iter().map(plain);
        if self.increments[at].1.execute(self.connection, values)? == 1 {
            return Ok(true);
        }
        if !self.is_there(key.as_ref())? {
            return Ok(false);
        }
        if self.has_sum(key, column, delta)? {
            return Err(skipped());
        }
        let name = &self.schema.columns[column].name;
        Err(Error::new(Kind::Check, format!("{name} + {delta} is no 64-bit integer")))
    }

    /// Whether an existing row's column can be added to.
    fn has_sum(&self, key: &Value, column: usize, delta: i64) -> Result<bool, Error> {
        let values = [key.as_ref(), ValueRef::Bigint(delta)].into_iter().map(plain);
        let mut sum = OnFirstUse::new(sum_sql(self.schema, column));
        let mut found = sum.bound(self.connection, values)?.raw_query();
        Ok(found.next().map_err(map)?.is_some())
    }
}

/// The error for a change that a trigger ignored without an error.
fn skipped() -> Error {
    Error::new(Kind::Check, "a trigger of the table let the row not be written")
}

fn update_sql(schema: &Schema, columns: &[usize]) -> String {
    let key = quoted(&schema.key_column().name);
    let sets: Vec<String> = (columns.iter().enumerate())
        .map(|(place, index)| format!("{} = ?{}", quoted(&schema.columns[*index].name), place + 2))
        .collect();
    format!("UPDATE {} SET {} WHERE {key} = ?1", quoted(&schema.name), sets.join(", "))
}

/// In SQLite an integer that overflows silently becomes a double; NULL plus a number is NULL.
fn increment_sql(schema: &Schema, column: usize) -> String {
    let (table, name) = (quoted(&schema.name), quoted(&schema.columns[column].name));
    format!("UPDATE {table} SET {name} = {name} + ?2 {}", has_sum(schema, column))
}

fn sum_sql(schema: &Schema, column: usize) -> String {
    format!("SELECT 1 FROM {} {}", quoted(&schema.name), has_sum(schema, column))
}

fn has_sum(schema: &Schema, column: usize) -> String {
    let (key, name) = (quoted(&schema.key_column().name), quoted(&schema.columns[column].name));
    format!("WHERE {key} = ?1 AND typeof({name} + ?2) = 'integer'")
}
