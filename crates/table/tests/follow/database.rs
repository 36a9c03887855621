//! The database of the model.

use super::*;

/// The database: rows, the position, and which keys others changed.
#[derive(Default)]
pub(super) struct Database {
    pub(super) rows: BTreeMap<i64, Values>,
    pub(super) position: Position,
    /// The keys that the stream of changes reports, in order.
    pub(super) told: Vec<i64>,
    /// How many of these keys were read by a poll.
    pub(super) read: usize,
    /// The refused changes that the drain has to report to memory.
    pub(super) refused: Vec<(i64, Position)>,
    /// The outcomes of intents that the drain has to report to memory.
    pub(super) outcomes: BTreeMap<Position, Outcome>,
    /// Whether it stores other values than it is given, and reports that as a change.
    pub(super) alters: bool,
    /// Keys whose unique value was written by this process.
    pub(super) own_codes: BTreeSet<i64>,
}

impl Database {
    pub(super) fn has_code(&self, key: i64, code: &Value) -> bool {
        !code.is_null() && self.rows.iter().any(|(other, row)| *other != key && row[CODE] == *code)
    }

    /// Applies one record; returns whether the database takes it.
    pub(super) fn take(&mut self, schema: &Schema, record: LogRecord<'_>) -> bool {
        let key = match record {
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } | LogRecord::Update { row, .. } => {
                number(row.key(schema))
            }
            LogRecord::Delete { key, .. }
            | LogRecord::Increment { key, .. }
            | LogRecord::Undone { key, .. }
            | LogRecord::Committed { key, .. } => number(key),
        };
        let after = match record {
            LogRecord::Insert { .. } if self.rows.contains_key(&key) => return false,
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } => Some(row.to_values(schema)),
            LogRecord::Delete { .. } => None,
            LogRecord::Undone { .. } | LogRecord::Committed { .. } => return true,
            LogRecord::Update { columns, row, .. } => {
                let Some(mut values) = self.rows.get(&key).cloned() else { return false };
                columns.of(row, schema).for_each(|(column, value)| values[column] = value.to_owned());
                Some(values)
            }
            LogRecord::Increment { delta, .. } => {
                let Some(mut values) = self.rows.get(&key).cloned() else { return false };
                if let Value::Bigint(number) = &mut values[CLICKS] {
                    let Some(sum) = number.checked_add(delta) else { return false };
                    *number = sum;
                }
                Some(values)
            }
        };
        match after {
            Some(values) if self.has_code(key, &values[CODE]) => return false,
            Some(mut values) => {
                if self.rows.get(&key).is_none_or(|row| row[CODE] != values[CODE]) {
                    self.own_codes.insert(key);
                }
                if self.alters && values[BODY] == body(7) {
                    values[BODY] = body(8);
                    self.told.push(key);
                }
                self.rows.insert(key, values);
            }
            None => drop(self.rows.remove(&key)),
        }
        true
    }
}
