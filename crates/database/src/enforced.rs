//! What a database enforces on a table: rules that can be evaluated from the values of one row, and rules
//! that only the database can evaluate, listed for people.

use crate::checks::{Columns, Compares};
use forebay_value::{Check, Column, Condition, Fill, KeyKind, Rule, Rules, Schema, StoredFill};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// The most characters of a definition that are shown.
const DEFINITION_CHARS: usize = 100;

/// The rules of one table. Equal values enforce the same.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Enforced {
    /// The rules for each column's value.
    pub rules: Rules,
    /// Sets of columns, by index, whose combined values must be unique.
    pub unique: Vec<Vec<usize>>,
    /// The columns, by index, that must not be set in an existing row.
    pub fixed: Vec<usize>,
    /// The columns' defaults.
    #[serde(default)]
    pub fills: Vec<Option<StoredFill>>,
    /// What only the database evaluates or does.
    pub listed: Vec<Listed>,
}

impl Enforced {
    /// The defaults of the columns of a schema; those of the schema itself when none were read.
    pub fn fills(&self, schema: &Schema) -> Vec<Option<Fill>> {
        if self.fills.is_empty() {
            return schema.columns.iter().map(|column| column.fill.clone()).collect();
        }
        let fill = |(index, column): (usize, &Column)| self.fills.get(index)?.as_ref()?.fill(column.ty);
        schema.columns.iter().enumerate().map(fill).collect()
    }
}

/// One thing that only the database evaluates or does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listed {
    /// Its name and definition.
    pub what: String,
    /// Its consequence for hot writes.
    pub means: Means,
}

/// The consequence for hot writes of something that only the database evaluates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Means {
    /// Rows are refused after the answer.
    Refused,
    /// Deletes are refused after the answer.
    DeletesRefused,
    /// The database does something more, and may refuse the write.
    Acts,
    /// Rows are hidden or refused, depending on the role.
    Policies,
    /// A default that the database computes for each row.
    Default,
    /// The text of a type that only the database reads.
    Form,
    /// The database refuses every write.
    Stops,
    /// A uniqueness that memory cannot check completely.
    Unique,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.means)
    }
}

/// The rest of a sentence that begins with the thing's name.
impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Means::Refused => {
                "is judged by the database alone, after the answer: refused rows are undone and become dead letters"
            }
            Means::DeletesRefused => {
                "may refuse a delete after the answer: the row comes back, the delete becomes a dead letter"
            }
            Means::Acts => {
                "runs in the database alone, after the answer: what it changes is seen here when the row is read again"
            }
            Means::Policies => {
                "hides rows from Forebay or refuses them as dead letters: give Forebay's user BYPASSRLS"
            }
            Means::Default => {
                "is computed by the database for each insert that gives no value, which waits for it"
            }
            Means::Form => {
                "is asked of the database for each write that gives a value, which waits for it; while it is away, rows that it refuses become dead letters"
            }
            Means::Stops => {
                "makes the database refuse every write: hot writes wait in the log until the columns that the key refers to are unique"
            }
            Means::Unique => {
                "is judged by the database alone, after the answer: the second of two equal rows becomes a dead letter"
            }
        })
    }
}

/// What the catalogue says about one column.
#[derive(Debug, Default)]
pub(crate) struct ColumnFacts {
    pub rule: Rule,
    /// How its values compare; `None` where that is uncertain.
    pub compares: Option<Compares>,
    pub is_fixed: bool,
    pub fill: Option<StoredFill>,
    /// Whether values that the database calls equal are the same values here.
    pub is_equal_by_bytes: bool,
}

/// The findings for one table, before they are matched with a schema.
#[derive(Default)]
pub(crate) struct TableFindings {
    pub columns: HashMap<String, ColumnFacts>,
    /// The column names of each unique index that is over columns alone.
    pub unique: Vec<Vec<String>>,
    pub listed: Vec<Listed>,
}

impl TableFindings {
    pub fn list(&mut self, what: String, means: Means) {
        self.listed.push(Listed { what: shortened(&what), means });
    }

    /// Lists a column's default if the database computes it for each row. One that the config gives the
    /// column counts before it.
    pub fn list_default(&mut self, column: &Column, expression: &str, fill: &Fill) {
        let is_used = matches!(column.fill, None | Some(Fill::Asked(_)));
        if is_used && matches!(fill, Fill::Asked(_)) {
            self.list(format!("DEFAULT {expression} of {}", column.name), Means::Default);
        }
    }

    /// Makes a CHECK a rule of its column if it can be evaluated in memory; returns whether it did. `value`:
    /// the column that `VALUE` means.
    pub fn judge(
        &mut self,
        read: fn(&str, &Columns<'_>) -> Option<(usize, Condition)>,
        condition: &str,
        text: &str,
        schema: &Schema,
        value: Option<usize>,
    ) -> bool {
        let facts = |column: &Column| self.columns.get(&column.name).and_then(|facts| facts.compares);
        let compares: Vec<_> = schema.columns.iter().map(facts).collect();
        let understood = read(condition, &Columns { schema, compares: &compares, value });
        let Some((column, condition)) = understood else { return false };
        let facts = self.columns.get_mut(&schema.columns[column].name).expect("it compares");
        facts.rule.checks.push(Check { text: shortened(text).into(), condition });
        true
    }

    /// Matches the findings with the columns of a schema.
    pub fn of(mut self, schema: &Schema) -> Enforced {
        let mut fixed = Vec::new();
        let mut rules = Vec::with_capacity(schema.columns.len());
        let mut fills = Vec::with_capacity(schema.columns.len());
        for (index, column) in schema.columns.iter().enumerate() {
            let facts = self.columns.remove(&column.name).unwrap_or_default();
            fixed.extend(facts.is_fixed.then_some(index));
            rules.push(facts.rule);
            let is_handed_out = index == schema.key && schema.key_kind == KeyKind::Serial;
            fills.push(facts.fill.filter(|_| !is_handed_out));
        }
        let mut unique = Vec::new();
        for names in std::mem::take(&mut self.unique) {
            let columns = names.iter().map(|name| schema.position(name)).collect::<Option<Vec<usize>>>();
            match columns {
                // Rows with different keys always differ in these columns.
                Some(columns) if columns.contains(&schema.key) => {}
                Some(mut columns) => {
                    columns.sort_unstable();
                    unique.push(columns);
                }
                None if names.len() == 1 => {}
                None => self.list(format!("UNIQUE ({})", names.join(", ")), Means::Unique),
            }
        }
        unique.sort();
        unique.dedup();
        self.listed.sort();
        self.listed.dedup();
        Enforced { rules: Rules::new(schema, rules), unique, fixed, fills, listed: self.listed }
    }
}

/// A definition in one line, shortened.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(DEFINITION_CHARS) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_rule_says_what_it_means() {
        let mut found = TableFindings::default();
        found.list("CHECK positive (qty >\n  0)".into(), Means::Refused);
        found.list(format!("TRIGGER t {}", "x".repeat(200)), Means::Acts);
        let lines: Vec<String> = found.listed.iter().map(Listed::to_string).collect();
        assert!(
            lines[0].starts_with("CHECK positive (qty > 0) is judged by the database alone, after the"),
            "{lines:?}"
        );
        assert!(lines[1].contains("xx … runs in the database alone"), "{lines:?}");
    }
}
