//! Dead letters once more: read in order, applied again.

use super::Sqlite;
use super::errors::map;
use super::schema::quoted;
use super::types;
use super::writer::Session;
use crate::{DeadLetter, Error, Kind, Op};
use forebay_value::{Schema, ValueRef};
use rusqlite::Connection;
use std::sync::Arc;

impl Sqlite {
    pub(crate) async fn dead_letters_after(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        let mut letters = self.dead_letters(usize::MAX).await?;
        letters.retain(|letter| letter.id > after);
        letters.reverse();
        letters.truncate(limit);
        Ok(letters)
    }

    /// Applies a dead letter's change again and deletes the letter, both or neither. False: the letter is gone.
    pub(crate) async fn replay(&self, schema: &Arc<Schema>, letter: &DeadLetter) -> Result<bool, Error> {
        let (op, schema, id) = (letter.change(schema)?, schema.clone(), letter.id);
        let replay = move |session: &mut Session| {
            session.transaction(|session| {
                let deleted = session
                    .connection
                    .execute("DELETE FROM forebay_dead_letter WHERE id = ?1", [id])
                    .map_err(map)?;
                if deleted == 1 {
                    run(&session.connection, &schema, &op)?;
                }
                Ok(deleted == 1)
            })
        };
        self.writer.urgent(replay).await
    }
}

fn run(connection: &Connection, schema: &Schema, op: &Op) -> Result<(), Error> {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let row = |row: &forebay_value::Row, conflict: &str| {
        let names: Vec<String> = schema.columns.iter().map(|column| quoted(&column.name)).collect();
        let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
        let sql =
            format!("INSERT INTO {table} ({}) VALUES ({}) {conflict}", names.join(", "), places.join(", "));
        let values: Vec<ValueRef<'_>> = row.as_ref().values(schema).collect();
        execute(connection, &sql, &values)
    };
    match op {
        Op::Insert(inserted) => row(inserted, "").map(drop),
        Op::Put(put) => {
            let sets =
                schema.columns.iter().map(|column| format!("{0} = excluded.{0}", quoted(&column.name)));
            let conflict =
                format!("ON CONFLICT ({key}) DO UPDATE SET {}", sets.collect::<Vec<_>>().join(", "));
            row(put, &conflict).map(drop)
        }
        Op::Delete(deleted) => {
            execute(connection, &format!("DELETE FROM {table} WHERE {key} = ?1"), &[deleted.as_ref()])
                .map(drop)
        }
        Op::Increment { key: of, column, delta } => {
            let name = quoted(&schema.columns[*column].name);
            let sql = format!(
                "UPDATE {table} SET {name} = {name} + ?2 WHERE {key} = ?1 AND typeof({name} + ?2) = 'integer'"
            );
            match execute(connection, &sql, &[of.as_ref(), ValueRef::Bigint(*delta)])? {
                1 => Ok(()),
                _ => {
                    let message = format!("no row has this key, or {name} + {delta} is no 64-bit integer");
                    Err(Error::new(Kind::Check, message))
                }
            }
        }
    }
}

fn execute(connection: &Connection, sql: &str, values: &[ValueRef<'_>]) -> Result<usize, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    for (index, value) in values.iter().enumerate() {
        types::bind(&mut statement, index + 1, *value).map_err(map)?;
    }
    statement.raw_execute().map_err(map)
}
