//! Whether a table in the database can be followed, with the columns that it is followed with.

use super::look::{Look, look, refused};
use crate::postgres::codec::Codec;
use crate::postgres::errors;
use crate::postgres::positions::integer;
use crate::postgres::session::Session;
use crate::postgres::sql::quoted;
use crate::postgres::table::text;
use crate::{Error, Follow, Kind};
use forebay_value::{Column, Need, Numbering};
use std::collections::HashMap;

/// The columns of a table, their types as PostgreSQL names them, and their numbers.
const COLUMNS: &str = "SELECT attname::text, format_type(atttypid, atttypmod), has_column_privilege(attrelid, attnum, 'SELECT'), attnum::int8 \
     FROM pg_attribute WHERE attrelid = $1::int8::oid AND attnum > 0 AND NOT attisdropped";

/// Looks at a table that is to be followed.
///
/// # Errors
/// [`Kind::Schema`]: why it cannot be followed, in a sentence that says what to do.
pub(super) async fn judge(session: &mut Session, follow: &Follow) -> Result<Look, Error> {
    let found = look(session, follow).await?;
    if let Some(why) = refused(&found, follow) {
        return Err(Error::new(Kind::Schema, why));
    }
    check(session, &found, follow).await?;
    Ok(found)
}

/// Checks that each column exists, can be read, and has the type that memory stores. The table is followed
/// without a column that it does not need and that is gone, or that nothing needs and that has another type.
///
/// # Errors
/// [`Kind::Schema`]: a sentence that names table and column. [`Kind::Busy`]: the table is locked.
async fn check(session: &mut Session, found: &Look, follow: &Follow) -> Result<(), Error> {
    let schema = &follow.schema;
    let refused = |what: String| Err(Error::new(Kind::Schema, format!("table {} {what}", schema.name)));
    let there = session.run(COLUMNS, &[found.value("oid").clone()]).await?;
    let numbers: HashMap<&str, i32> =
        // An attnum is a smallint.
        there.iter().map(|row| (text(&row[0]), integer(&row[3]) as i32)).collect();
    let there: HashMap<&str, (&str, bool)> = there
        .iter()
        .map(|row| (text(&row[0]), (text(&row[1]), row[2] == forebay_value::Value::Bool(true))))
        .collect();
    let mut readable = Vec::with_capacity(schema.columns.len());
    for (index, column) in schema.columns.iter().enumerate() {
        match there.get(column.name.as_str()) {
            None if schema.presence.need(index) != Need::Table => {}
            None => return refused(format!("has no column {} any more", column.name)),
            Some((_, false)) => {
                let (table, me) = (found.table(), quoted(found.text("me")));
                return refused(format!(
                    "may not be read in column {}: GRANT SELECT ON {table} TO {me}",
                    column.name
                ));
            }
            Some((_, true)) => readable.push(index),
        }
    }
    let names: Vec<String> = readable.iter().map(|index| quoted(&schema.columns[*index].name)).collect();
    let sql = format!("SELECT {} FROM {}", names.join(", "), found.table());
    let types = |statement: tokio_postgres::Statement| {
        let codec = |ty| Codec::of(ty).unwrap_or(Codec::AsText);
        statement.columns().iter().map(|column| codec(column.type_())).collect::<Vec<_>>()
    };
    let codecs = session.answer(session.look_at(&sql, types)).await?.map_err(errors::map)?;
    let mut is_gone = vec![true; schema.columns.len()];
    for (index, codec) in readable.into_iter().zip(codecs) {
        let column = &schema.columns[index];
        let is_same = codec.value_type().unbounded() == column.ty.unbounded();
        if !is_same && schema.presence.need(index) != Need::Nothing {
            let now = there.get(column.name.as_str()).map_or("", |(ty, _)| ty);
            return refused(format!("has a column {} of type {now} now; it was {}", column.name, column.ty));
        }
        is_gone[index] = !is_same;
    }
    let number = |column: &Column| numbers.get(column.name.as_str()).copied().unwrap_or(0);
    let columns = schema.columns.iter().map(number).collect();
    let numbering = Numbering { table: integer(found.value("oid")), columns };
    schema.numbers.see(numbering, numbers.values().copied().collect());
    schema.presence.see(&is_gone, there.keys().any(|name| schema.position(name).is_none()));
    Ok(())
}
