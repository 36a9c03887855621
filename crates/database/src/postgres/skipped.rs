//! Rows that the table does not have although their INSERT has not failed: a BEFORE trigger may give NULL,
//! and a rule may do something instead.
//!
//! Promises that such a row is refused like one that is refused with an error, and that a trigger which puts
//! rows into a table that inherits from this one has none refused. A connection asks now and then whether a
//! table has such triggers or rules; one without them costs nothing else. Leaves updates and deletes that are
//! skipped: their row is there.

use super::batch_outcome::Done;
use super::bulk::array;
use super::session::Session;
use super::sql::quoted;
use super::table::{key_array, number};
use crate::{Batch, Change, Error, Kind, Op};
use forebay_value::{Schema, Value};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Whether rows of a table, or of its partitions, may be skipped. Forebay's own triggers skip nothing.
const MAY_SKIP: &str = "WITH own AS (SELECT to_regclass($1)::oid AS of UNION SELECT relid::oid FROM pg_partition_tree(to_regclass($1))) \
     SELECT count(*) FROM own WHERE EXISTS (SELECT FROM pg_rewrite WHERE ev_class = own.of AND ev_type = '3') \
       OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = own.of AND NOT tgisinternal AND tgname !~ '^forebay_' \
         AND tgenabled IN ('O', 'A') AND tgtype & 7 = 7)";

/// Whether some row of a batch may be skipped.
pub(super) async fn may_be(session: &mut Session, batch: &Batch) -> Result<bool, Error> {
    let tables: BTreeSet<usize> =
        batch.changes.iter().filter(|change| brings_row(change)).map(|change| change.table).collect();
    let mut found = false;
    for table in tables {
        found |= may_skip(session, &batch.schemas[table]).await?;
    }
    Ok(found)
}

async fn may_skip(session: &mut Session, schema: &Schema) -> Result<bool, Error> {
    if let Some(known) = session.skipping.of(&schema.name) {
        return Ok(known);
    }
    let found = session.run(MAY_SKIP, &[Value::Text(quoted(&schema.name).into())]).await?;
    let is_so = number(&found, 0, 0) > 0;
    session.skipping.note(&schema.name, is_so);
    Ok(is_so)
}

/// Those of the `applied` changes of a batch, by their place, whose rows are not there now, in the
/// transaction that has applied them as `done` says.
pub(super) async fn find(
    session: &mut Session,
    batch: &Batch,
    applied: Range<usize>,
    done: &Done,
) -> Result<Vec<usize>, Error> {
    let mut skipped = Vec::new();
    for (table, schema) in batch.schemas.iter().enumerate() {
        let mut last: HashMap<i64, usize> = HashMap::new();
        let changes = applied.clone().map(|index| (index, &batch.changes[index]));
        let own = changes.filter(|(_, change)| change.table == table);
        for (index, change) in own.filter(|(_, change)| !done.not_applied.contains(&change.position)) {
            let key = change.key_hash(&batch.schemas);
            if brings_row(change) {
                last.insert(key, index);
            } else if let Op::Delete(_) = change.op {
                last.remove(&key);
            }
        }
        if last.is_empty() || !may_skip(session, schema).await? {
            continue;
        }
        let places: Vec<usize> = last.into_values().collect();
        let keys = array(places.iter().map(|&index| batch.changes[index].op.key(schema)));
        let sql = format!(
            "SELECT own.place FROM unnest($1::{}) WITH ORDINALITY AS own (key, place) \
             WHERE NOT EXISTS (SELECT FROM {} AS t WHERE t.{} = own.key)",
            key_array(schema),
            quoted(&schema.name),
            quoted(&schema.key_column().name)
        );
        let missing = session.run(&sql, &[keys]).await?;
        // Counted from 1.
        let missing = (0..missing.len()).map(|row| number(&missing, row, 0).unsigned_abs() as usize);
        skipped.extend(missing.filter_map(|place| places.get(place.checked_sub(1)?).copied()));
    }
    skipped.sort_unstable();
    Ok(skipped)
}

/// Why such a row is refused.
pub(super) fn reason() -> Error {
    Error::new(Kind::Check, "a trigger or a rule of the table let the row not be written")
}

fn brings_row(change: &Change) -> bool {
    matches!(change.op, Op::Insert(_) | Op::Put(_))
}
