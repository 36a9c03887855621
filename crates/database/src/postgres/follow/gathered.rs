//! The contents of a page: the keys that were reported or requested, each once, with the rows as of the
//! page's snapshot.

use super::cursor::Tracked;
use crate::postgres::apart::named;
use crate::postgres::bulk::array;
use crate::postgres::errors::is_foreign_text;
use crate::postgres::rewritten::not_rewritten;
use crate::postgres::session::Session;
use crate::postgres::sql::{literal, quoted};
use crate::postgres::table::{columns, key_array, row_from_values};
use crate::{Error, Follow, Followed, FollowedRow, Kind};
use forebay_value::{Row, Schema, Type, Value, ValueRef, from_text};
use std::collections::HashMap;

/// A page that is being built: each key once.
pub(super) struct Page {
    pub(super) found: Followed,
    /// The index of each key in `found.rows`, by table.
    places: Vec<HashMap<String, usize>>,
    /// Previous values as the triggers wrote them: the row's index, and the text.
    previous: Vec<(usize, Box<str>)>,
}

impl Page {
    pub(super) fn new(follows: &[Follow], wanted: &[(usize, Value)]) -> Page {
        let places = follows.iter().map(|_| HashMap::new()).collect();
        let mut page = Page { found: Followed::default(), places, previous: Vec::new() };
        for (table, key) in wanted {
            let place = page.place(*table, key_text(key), || Ok(key.clone()));
            let place = place.expect("a key that is given is a key");
            page.found.rows[place].wanted = true;
        }
        page
    }

    fn place(
        &mut self,
        table: usize,
        text: String,
        key: impl FnOnce() -> Result<Value, Error>,
    ) -> Result<usize, Error> {
        if let Some(place) = self.places[table].get(&text) {
            return Ok(*place);
        }
        let (key, place) = (key()?, self.found.rows.len());
        self.places[table].insert(text, place);
        self.found.rows.push(FollowedRow {
            table,
            key,
            row: None,
            unfit: None,
            old: Vec::new(),
            wanted: false,
        });
        Ok(place)
    }

    /// Takes a change of this relation, of the row with this key; `None`: of any row. `old` are its previous
    /// values, an object of texts.
    pub(super) fn told(
        &mut self,
        tables: &[Tracked],
        relation: i64,
        key: Option<&str>,
        old: Option<&str>,
    ) -> Result<(), Error> {
        let followed = tables.iter().enumerate().find_map(|(index, tracked)| {
            let table = tracked.table.as_ref().filter(|table| table.oid == relation)?;
            Some((index, table.key_type))
        });
        let Some((table, key_type)) = followed else {
            // A table that another server follows, or one that cannot be followed now.
            return Ok(());
        };
        let Some(key) = key else {
            if !self.found.reload.contains(&table) {
                self.found.reload.push(table);
            }
            return Ok(());
        };
        #[cfg(feature = "planted")]
        let old = old.filter(|_| !crate::planted_bugs::is("old-tag-forgotten"));
        let place = self.place(table, key.to_owned(), || {
            from_text(key_type, key).map_err(|why| Error::new(Kind::Type, format!("a changed key {why}")))
        })?;
        if let Some(old) = old {
            self.previous.push((place, old.into()));
        }
        Ok(())
    }

    /// Reads the previous values and the present rows, except of tables that have a trouble: their keys are
    /// left for later, or given up where the whole table is to be read again. `fault` is the table whose rows
    /// were being read when this fails.
    pub(super) async fn read(
        &mut self,
        session: &mut Session,
        follows: &[Follow],
        tables: &[Tracked],
        fault: &mut Option<usize>,
    ) -> Result<(), Error> {
        self.previous(session, follows, tables).await?;
        self.rows(session, follows, tables, fault).await?;
        let (read, unread) = std::mem::take(&mut self.found.rows)
            .into_iter()
            .partition::<Vec<_>, _>(|row| tables[row.table].trouble.is_none());
        self.found.rows = read;
        self.found.later = unread.into_iter().filter(|row| tables[row.table].table.is_some()).collect();
        Ok(())
    }

    /// Parses the previous values, each as its column's type.
    async fn previous(
        &mut self,
        session: &mut Session,
        follows: &[Follow],
        tables: &[Tracked],
    ) -> Result<(), Error> {
        for (table, follow) in follows.iter().enumerate().filter(|(_, follow)| !follow.old.is_empty()) {
            let mine: Vec<&(usize, Box<str>)> =
                self.previous.iter().filter(|(place, _)| self.found.rows[*place].table == table).collect();
            let Some(tracked) = tables[table].table.as_ref().filter(|_| !mine.is_empty()) else { continue };
            let typed = follow.old.iter().zip(&tracked.old_types).map(|(&column, ty)| {
                let column = &follow.schema.columns[column];
                // What is carried as text stays the text that the trigger wrote.
                let ty = if column.ty == Type::AsText { "text" } else { ty };
                format!("(o.old::jsonb ->> {})::{ty}", literal(&column.name))
            });
            let sql = format!(
                "SELECT {} FROM unnest($1::text[]) WITH ORDINALITY AS o (old, n) ORDER BY o.n",
                typed.collect::<Vec<_>>().join(", ")
            );
            let texts = array(mine.iter().map(|(_, old)| ValueRef::Text(old)));
            let values = session.run(&sql, &[texts]).await?;
            let places: Vec<usize> = mine.iter().map(|(place, _)| *place).collect();
            for (place, values) in places.into_iter().zip(values.iter()) {
                self.found.rows[place].old.push(values.to_vec());
            }
        }
        Ok(())
    }

    /// Reads the present rows.
    async fn rows(
        &mut self,
        session: &mut Session,
        follows: &[Follow],
        tables: &[Tracked],
        fault: &mut Option<usize>,
    ) -> Result<(), Error> {
        #[cfg(feature = "planted")]
        if crate::planted_bugs::is("fetch-without-snapshot") {
            // The window is held open, as on a busy server.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let is_readable = |(table, _): &(usize, &Follow)| tables[*table].trouble.is_none();
        for (table, follow) in follows.iter().enumerate().filter(is_readable) {
            *fault = Some(table);
            let keys: Vec<Value> =
                self.found.rows.iter().filter(|row| row.table == table).map(|row| row.key.clone()).collect();
            let mut left = vec![&keys[..]];
            while let Some(keys) = left.pop().filter(|keys| !keys.is_empty()) {
                match read_rows(session, &follow.schema, keys).await {
                    // One row's trouble: the other rows are read without it.
                    Err(error) if is_of_one_row(session, &error) => match keys {
                        [key] if session.lacks(key).await? => {}
                        [key] => {
                            let place = self.place(table, key_text(key), || Ok(key.clone()))?;
                            let error = named(session, &follow.schema, key, error).await?;
                            self.found.rows[place].unfit = Some(error.to_string().into());
                        }
                        keys => {
                            let (one, other) = keys.split_at(keys.len() / 2);
                            left.extend([one, other]);
                        }
                    },
                    Err(error) => return Err(error.context(format!("reading table {}", follow.schema.name))),
                    Ok(rows) => {
                        if rows.len() < keys.len() {
                            not_rewritten(session, &follow.schema).await?;
                        }
                        for (key, row) in rows {
                            let place = self.place(table, key_text(&key), || Ok(key))?;
                            let found = &mut self.found.rows[place];
                            match row {
                                Ok(row) => found.row = Some(row),
                                Err(error) => found.unfit = Some(error.to_string().into()),
                            }
                        }
                    }
                }
            }
        }
        *fault = None;
        Ok(())
    }
}

/// Whether the other rows can be read without the one.
fn is_of_one_row(session: &Session, error: &Error) -> bool {
    matches!(error.kind(), Kind::TooLarge | Kind::Unfit) || session.converts && is_foreign_text(error)
}

/// The existing rows, each with its key; an error concerns one row, which a hot table cannot store.
async fn read_rows(
    session: &mut Session,
    schema: &Schema,
    keys: &[Value],
) -> Result<Vec<(Value, Result<Row, Error>)>, Error> {
    let key = quoted(&schema.key_column().name);
    let sql = format!(
        "SELECT {} FROM {} WHERE {key} = ANY ($1::{})",
        columns(schema),
        quoted(&schema.name),
        key_array(schema)
    );
    let found = session.run_apart(&sql, &[array(keys.iter().map(Value::as_ref))]).await?;
    let row = |values: &[Value]| (values[schema.key].clone(), row_from_values(schema, values));
    Ok(found.iter().map(row).collect())
}

/// A key in the form that the triggers write.
fn key_text(key: &Value) -> String {
    match key {
        Value::Bigint(key) => key.to_string(),
        Value::Uuid(key) => key.to_string(),
        Value::Text(key) => key.to_string(),
        // No table has a key of this type.
        _ => String::new(),
    }
}
