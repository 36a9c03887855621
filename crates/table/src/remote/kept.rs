//! The structures that a tier keeps for a table besides its rows: reservations of unique values, counts by
//! value, the order of its keys.
//!
//! They are built as rows are loaded and written. A structure that a later config or a later constraint of
//! the database requires does not cover the rows from before, and a server that does not know a structure
//! does not update it. So the tier's own hash has a field `kept:<table>` for each table, which the first
//! server writes and with which every other one must agree:
//! ```text
//! { "unique": [ "email" ], "indexed": [ "city" ], "ordered": true }
//! ```
//! - A server keeps the counts and the order that the field names, even when its own config does not need
//!   them.
//! - A structure that the field does not name is not available in this tier. A server whose config requires
//!   one is refused. For a table whose columns come from the database, the database alone checks the
//!   uniqueness of such a column, and it is not counted.
//! - A column that is no longer unique is removed from the field: from then on rows are written without
//!   reservations.
//!
//! Not covered: a tier of a version without this field. It is assumed to keep what the first server of this
//! version requires.

use super::tier::Tier;
use super::{scripts, wire};
use crate::error::HotError;
use crate::record::TableId;
use crate::spec::TableSpec;
use forebay_redis::Link;
use forebay_value::Schema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TableStructures {
    unique: BTreeSet<String>,
    indexed: BTreeSet<String>,
    ordered: bool,
}

/// The field of the tier's hash.
fn field(table: TableId) -> Vec<u8> {
    format!("kept:{table}").into_bytes()
}

impl TableStructures {
    fn of(schema: &Schema, ordered: bool) -> TableStructures {
        let names = |columns: &mut dyn Iterator<Item = usize>| {
            columns.map(|column| schema.columns[column].name.clone()).collect()
        };
        TableStructures {
            unique: names(&mut schema.unique_columns()),
            indexed: names(&mut schema.indexed_columns()),
            ordered,
        }
    }

    fn text(&self) -> String {
        serde_json::to_string(self).expect("names can be written")
    }

    fn read(text: &[u8]) -> Result<TableStructures, HotError> {
        serde_json::from_slice(text)
            .map_err(|error| HotError::foreign(format!("what the tier keeps of a table: {error}")))
    }

    /// The structures of this that `other` lacks, in words.
    fn beyond(&self, other: &TableStructures) -> Vec<String> {
        let unique = self.unique.difference(&other.unique).map(|name| format!("`{name}` unique"));
        let indexed = self.indexed.difference(&other.indexed).map(|name| format!("`{name}` indexed"));
        let ordered = (self.ordered && !other.ordered).then(|| "its keys listed in order".to_owned());
        unique.chain(indexed).chain(ordered).collect()
    }
}

impl Tier {
    /// Adapts the tables to the structures that the tier keeps. Returns a sentence for each table whose
    /// columns come from the database and that lacks one. `is_declared`: the columns of a table come from the
    /// config.
    pub async fn agree(
        &self,
        link: &Link,
        ids: &[TableId],
        specs: &mut [TableSpec],
        is_declared: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, HotError> {
        let mut lacking = Vec::new();
        for (id, spec) in ids.iter().zip(specs) {
            let wanted = TableStructures::of(&spec.schema, spec.ordered);
            let kept = self.kept(link, *id, &wanted).await?;
            let lacks = wanted.beyond(&kept);
            let name = spec.schema.name.clone();
            if !lacks.is_empty() {
                let said = format!("table {name} is to have {}", lacks.join(", "));
                if is_declared(&name) || wanted.ordered && !kept.ordered {
                    return Err(self.refused(&said));
                }
                lacking.push(said);
            }
            for column in &mut spec.schema.columns {
                column.unique &= kept.unique.contains(&column.name);
                column.indexed = kept.indexed.contains(&column.name);
            }
            spec.ordered = kept.ordered;
            self.kept_fields.lock().extend([field(*id), kept.text().into_bytes()]);
        }
        Ok(lacking.into_iter().map(|said| format!("{said}, and {}", self.why_not())).collect())
    }

    /// The structures kept for a table from now on, when this server wants `wanted`.
    async fn kept(
        &self,
        link: &Link,
        id: TableId,
        wanted: &TableStructures,
    ) -> Result<TableStructures, HotError> {
        let (mut expected, mut new) = (String::new(), wanted.clone());
        loop {
            let args = vec![field(id), expected.clone().into_bytes(), new.text().into_bytes()];
            let answer = link.write(self.names.slot, &scripts::KEEP, vec![self.names.tier.clone()], args);
            let found = wire::text("what is kept", answer.await?)?;
            let kept = TableStructures::read(found.as_bytes())?;
            let unique: BTreeSet<String> = kept.unique.intersection(&wanted.unique).cloned().collect();
            if unique == kept.unique {
                return Ok(kept);
            }
            (expected, new) = (found, TableStructures { unique, ..kept });
        }
    }

    fn why_not(&self) -> String {
        format!(
            "the rows in the memory tier were loaded without that. To have it, stop all servers of the tier, drain it \
             with the config as it was, and delete its keys, {}*: the next start loads the tables anew",
            self.names.root
        )
    }

    fn refused(&self, said: &str) -> HotError {
        HotError::foreign(format!("{said}, and {}", self.why_not()))
    }
}
