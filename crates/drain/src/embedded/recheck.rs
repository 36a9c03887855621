//! Compares again the rows of a followed table that differed from the database.
//!
//! Memory follows the database with a short delay, so that a comparison while others write finds rows that
//! have changed on one side and not yet on the other. A row counts as different only when it differs at every
//! look, each time after memory has received everything that was committed before.

use crate::Error;
use crate::verify::{Difference, Differences, difference, is_same};
use forebay_database::{Kind, Store};
use forebay_table::{Counters, Read, Table};
use forebay_value::{Row, Value, ValueRef};
use std::time::Duration;

/// How often a row that differs is compared again.
const LOOKS: usize = 8;

/// How long one comparison waits until memory contains what is committed.
const WAIT: Duration = Duration::from_secs(1);

/// Compares the rows with these keys again, and counts each as what it proves to be.
pub(super) async fn compare(
    table: &Table,
    store: &Store,
    mut found: Differences,
    mut doubtful: Vec<Value>,
) -> Result<Differences, Error> {
    for look in 1..=LOOKS {
        if doubtful.is_empty() {
            break;
        }
        // Without a follower (a command without a running server) memory stays as it was loaded.
        let _ = tokio::time::timeout(WAIT, table.passed()).await;
        let mut still = Vec::new();
        for key in doubtful {
            match judge(table, store, key.as_ref()).await? {
                Judged::Same => found.compared += 1,
                Judged::Undrained => found.undrained += 1,
                Judged::Evicted => found.evicted += 1,
                Judged::Differs(difference) if look == LOOKS => count(&mut found, difference),
                Judged::Differs(_) => still.push(key),
            }
        }
        doubtful = still;
    }
    Ok(found)
}

enum Judged {
    Same,
    Undrained,
    Evicted,
    Differs(Difference),
}

async fn judge(table: &Table, store: &Store, key: ValueRef<'_>) -> Result<Judged, Error> {
    let schema = table.schema();
    let database = match store.fetch(schema, key.to_owned()).await {
        // The row exists, and memory must not show another one.
        Err(error) if *error.kind() == Kind::Unfit => {
            return Ok(match table.get(key, Counters::Shown, |_| ()) {
                Read::Fetch(_) => Judged::Evicted,
                _ => Judged::Differs(Difference::MissingInMemory(key.to_owned())),
            });
        }
        read => read?,
    };
    let memory = match table.get(key, Counters::Shown, |row| Row(row.0.into())) {
        Read::Found(_, position) | Read::Missing(position) if position > table.followed_position() => {
            return Ok(Judged::Undrained);
        }
        Read::Fetch(_) if database.is_some() => return Ok(Judged::Evicted),
        Read::Found(row, _) => Some(row),
        Read::Missing(_) | Read::Fetch(_) => None,
    };
    Ok(match (memory, database) {
        (None, None) => Judged::Same,
        (Some(memory), Some(database)) => {
            let stored = store.as_stored(schema, vec![memory]).await?.remove(0);
            match is_same(schema, &stored, &database) {
                true => Judged::Same,
                false => Judged::Differs(difference(schema, &stored, &database)),
            }
        }
        (Some(_), None) => Judged::Differs(Difference::MissingInDatabase(key.to_owned())),
        (None, Some(_)) => Judged::Differs(Difference::MissingInMemory(key.to_owned())),
    })
}

fn count(found: &mut Differences, difference: Difference) {
    match difference {
        Difference::MissingInDatabase(_) => found.missing_in_database += 1,
        Difference::MissingInMemory(_) => found.missing_in_memory += 1,
        Difference::Different { .. } => found.different += 1,
    }
    found.example(|| difference);
}
