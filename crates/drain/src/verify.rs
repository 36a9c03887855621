//! Compares a hot table with the database, row by row: the part that both tiers share. `embedded/verify.rs`
//! and `remote/verify.rs` pair memory's rows with the database's while a server is running.
//!
//! The database may store a row in another form (a `char(4)` pads, a `numeric(10,2)` rounds, `jsonb` sorts
//! its fields): a row that differs is compared again in the form that the database would return.

use crate::limits::{EXAMPLES, STORED_ROWS};
use crate::{Error, Kind};
use forebay_database::Store;
use forebay_value::{Need, Row, RowRef, Schema, Value, ValueRef};

/// The differences between memory and the database.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Differences {
    /// Rows that were compared, value by value.
    pub compared: u64,
    /// Rows of which memory contains only the key, because they were evicted: the database contains them.
    pub evicted: u64,
    /// Rows that changed after the snapshot's position, or that have held changes: their changes are in the
    /// log, not yet in the database.
    pub undrained: u64,
    /// Rows that only the database contains, of a table that other programs write to (`shared`): expected.
    pub only_in_database: u64,
    /// Rows that memory contains and the database does not.
    pub missing_in_database: u64,
    /// Rows that the database contains and memory does not.
    pub missing_in_memory: u64,
    /// Rows that both contain, with different values.
    pub different: u64,
    /// Changes of this table, from this log, that are in `forebay_dead_letter`.
    pub dead: u64,
    /// The first few differences.
    pub examples: Vec<Difference>,
    /// Why not all of the table could be compared: the database lacks it, or a column of it.
    pub failed: Option<String>,
}

/// How memory and the database disagree about one key.
#[derive(Debug, Clone, PartialEq)]
pub enum Difference {
    /// Memory contains the row, the database does not.
    MissingInDatabase(Value),
    /// The database contains the row, memory does not.
    MissingInMemory(Value),
    /// Both contain the row, with another value in a column. The values themselves are in no report.
    Different {
        /// The key of both rows.
        key: Value,
        /// The first column that differs.
        column: String,
    },
}

impl Differences {
    /// Whether memory and database contain the same, as far as the queue is drained.
    pub fn is_clean(&self) -> bool {
        let differing = self.missing_in_database + self.missing_in_memory + self.different;
        differing + self.dead == 0 && self.failed.is_none()
    }

    /// Of a table that could not be compared.
    pub fn failed(why: String) -> Differences {
        Differences { failed: Some(why), ..Differences::default() }
    }

    /// The result of comparing a table: a failure of the table alone is no reason not to compare the others.
    pub(crate) fn judged(
        compared: Result<Differences, Error>,
        schema: &Schema,
    ) -> Result<Differences, Error> {
        let found = match compared {
            Err(error) if error.kind() == Kind::Database && !error.may_retry() => {
                return Ok(Differences::failed(error.to_string()));
            }
            compared => compared?,
        };
        let named = schema.presence.gone().filter(|column| schema.presence.need(*column) == Need::Endpoints);
        let named: Vec<&str> = named.map(|column| &*schema.columns[column].name).collect();
        let failed = (!named.is_empty())
            .then(|| format!("the database has no column {}, which the config names", named.join(", ")));
        Ok(Differences { failed, ..found })
    }

    pub(crate) fn example(&mut self, example: impl FnOnce() -> Difference) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// A row as memory has it, and as the database has it.
pub(crate) type Pair = (Row, Row);

/// The pairs that still differ when memory's row is converted as the database's columns would store it, with
/// memory's row in that form.
pub(crate) async fn still_different(
    store: &Store,
    schema: &Schema,
    pairs: Vec<Pair>,
) -> Result<Vec<Pair>, Error> {
    let mut still = Vec::new();
    for some in pairs.chunks(STORED_ROWS) {
        let memory = some.iter().map(|(memory, _)| memory.clone()).collect();
        let stored = store.as_stored(schema, memory).await?;
        let pairs = stored.into_iter().zip(some.iter().map(|(_, database)| database.clone()));
        still.extend(pairs.filter(|(stored, database)| !is_same(schema, stored, database)));
    }
    Ok(still)
}

/// Whether two rows are the same, by value.
pub(crate) fn is_same(schema: &Schema, memory: &Row, database: &Row) -> bool {
    memory.0 == database.0 || first_difference(schema, memory.as_ref(), database.as_ref()).is_none()
}

/// Describes how a pair differs.
pub(crate) fn difference(schema: &Schema, memory: &Row, database: &Row) -> Difference {
    let key = database.as_ref().key(schema).to_owned();
    // Every column counts: one may be gone by now that was not when the rows were compared.
    match differing(schema, memory.as_ref(), database.as_ref(), |_| true) {
        Some(column) => Difference::Different { key, column },
        None => unreachable!("rows that are the same are no difference"),
    }
}

/// The first column that differs by value, of those that the database has.
pub(crate) fn first_difference(schema: &Schema, memory: RowRef<'_>, database: RowRef<'_>) -> Option<String> {
    differing(schema, memory, database, |column| !schema.presence.is_gone(column))
}

/// The first of these columns that differs by value: databases drop the sign of a zero and the notation of a
/// decimal, and neither is a difference.
fn differing(
    schema: &Schema,
    memory: RowRef<'_>,
    database: RowRef<'_>,
    counts: impl Fn(usize) -> bool,
) -> Option<String> {
    let mut pairs = memory.values(schema).zip(database.values(schema)).enumerate();
    let (column, _) =
        pairs.find(|(column, (memory, database))| counts(*column) && !is_same_value(*memory, *database))?;
    Some(schema.columns[column].name.clone())
}

fn is_same_value(memory: ValueRef<'_>, database: ValueRef<'_>) -> bool {
    match (memory, database) {
        (ValueRef::Numeric(memory), ValueRef::Numeric(database)) => {
            memory == database || decimal(memory).is_some_and(|number| Some(number) == decimal(database))
        }
        (ValueRef::Double(memory), ValueRef::Double(database)) if memory.is_nan() => database.is_nan(),
        _ => memory == database,
    }
}

/// A decimal as its sign, its digits without leading and trailing zeros, and the power of ten of its last
/// digit; `None` for an exponent out of bounds.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let without_tail = digits.trim_end_matches('0');
    let power = exponent.parse::<i32>().ok()? as i64 - fraction.len() as i64;
    let power = power + (digits.len() - without_tail.len()) as i64;
    match without_tail.trim_start_matches('0') {
        "" => Some((false, String::new(), 0)),
        digits => Some((is_negative, digits.to_owned(), power)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_compared_by_value() {
        for (one, other, same) in [
            ("7.50", "7.5", true),
            ("75e-1", "7.5", true),
            ("-0.0", "0", true),
            ("1E+3", "1000", true),
            ("0.00100", "1e-3", true),
            ("7.5", "-7.5", false),
            ("7.5", "75", false),
            ("12345678901234567890.1", "12345678901234567890.2", false),
            ("1e99999999999", "1e99999999998", false),
        ] {
            let (one, other) = (ValueRef::Numeric(one), ValueRef::Numeric(other));
            assert_eq!(is_same_value(one, other), same, "{one:?} {other:?}");
        }
    }
}
