//! Finds rows that already are as a change would make them, although its statement changed none: a trigger
//! such as `suppress_redundant_updates_trigger` skips changes without effect. Values are compared as text,
//! because not every type has an equality operator.

use super::session::Session;
use super::sql::{literal, quoted};
use super::table::{Casts, number};
use crate::{Error, Op};
use forebay_value::{Schema, Value, ValueRef};

/// Whether a row exists in the state that a put or an update would give it.
pub(super) async fn is_already_applied(
    session: &mut Session,
    schema: &Schema,
    op: &Op,
) -> Result<bool, Error> {
    let (key, wanted): (ValueRef<'_>, Vec<(usize, Value)>) = match op {
        Op::Put(row) => {
            let values = row.as_ref().to_values(schema);
            (row.as_ref().key(schema), values.into_iter().enumerate().collect())
        }
        Op::Update { key, columns } => (key.as_ref(), columns.to_vec()),
        _ => return Ok(false),
    };
    // A parameter of the column's type, whatever that is.
    let is_same = |(place, (index, _)): (usize, &(usize, Value))| {
        let name = quoted(&schema.columns[*index].name);
        format!(
            " AND t.{name}::text IS NOT DISTINCT FROM (CASE WHEN true THEN ${} ELSE t.{name} END)::text",
            place + 2
        )
    };
    let all_same: String = wanted.iter().enumerate().map(is_same).collect();
    let (table, key_name) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let sql = format!("SELECT 1 FROM {table} AS t WHERE t.{key_name} = $1{all_same}");
    let values: Vec<Value> =
        std::iter::once(key.to_owned()).chain(wanted.into_iter().map(|(_, value)| value)).collect();
    Ok(!session.run(&sql, &values).await?.is_empty())
}

/// How many rows of the table equal, in these columns, the rows with their keys in `stage`; for a put only
/// rows that it could have changed.
pub(super) async fn as_staged(
    session: &mut Session,
    schema: &Schema,
    casts: &Casts,
    stage: &str,
    of: &[usize],
    is_put: bool,
) -> Result<u64, Error> {
    let texts = |text: &dyn Fn(usize) -> String| {
        of.iter().map(|index| format!("{}::text", text(*index))).collect::<Vec<_>>().join(", ")
    };
    let stored = texts(&|index| format!("t.{}", quoted(&schema.columns[index].name)));
    let staged = texts(&|index| casts.stored("s", schema, index));
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let only = if is_put { format!(" AND NOT ({})", elsewhere(&literal(&table))) } else { String::new() };
    let sql = format!(
        "SELECT count(*) FROM {table} AS t JOIN {stage} AS s ON t.{key} = s.{key} JOIN pg_class AS of ON of.oid = t.tableoid \
         WHERE ROW({stored}) IS NOT DISTINCT FROM ROW({staged}){only}"
    );
    let found = session.run(&sql, &[]).await;
    // The temporary table's name will refer to another table.
    session.forget(&sql);
    Ok(number(&found?, 0, 0).unsigned_abs())
}

/// An SQL condition: whether a row, whose table is the `of` of `pg_class`, is in a table that inherits from
/// the table with this name.
pub(super) fn elsewhere(name: &str) -> String {
    format!("of.relkind = 'r' AND NOT of.relispartition AND of.oid <> to_regclass({name})")
}
