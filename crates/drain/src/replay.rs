//! Applies dead letters again, after the cause of their refusal was corrected.

use crate::{Error, Progress};
use forebay_database::{DeadLetter, Store};
use forebay_value::{Schema, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Dead letters read at a time.
const LETTERS: usize = 1_000;

/// The outcome of a replay.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Applied, and deleted from the dead letters.
    pub applied: u64,
    /// Their rows: table and key. Memory still shows each row as it was when the database refused the change.
    pub rows: Vec<(String, Value)>,
    /// Refused again, each with the present reason: they stay.
    pub refused: Vec<(DeadLetter, String)>,
}

/// Applies every dead letter again, oldest first, each in its own transaction that also deletes it.
///
/// The change goes to the database and not into memory, which dropped it when it was refused: a caller that
/// has this memory reads [`Replayed::rows`] again. `schemas` are the tables by name; a dead letter of another
/// table stays, with that as its reason.
///
/// # Errors
/// [`Kind::Database`](crate::Kind::Database) when the database cannot be used; the dead letters applied
/// before stay applied.
pub async fn replay(
    store: &Store,
    schemas: &HashMap<String, Arc<Schema>>,
    progress: &Progress,
) -> Result<Replayed, Error> {
    let mut replayed = Replayed::default();
    let mut after = 0;
    loop {
        let letters = store.dead_letters_after(after, LETTERS).await?;
        let Some(last) = letters.last() else { return Ok(replayed) };
        after = last.id;
        for letter in letters {
            progress.add(1);
            let Some(schema) = schemas.get(&letter.table) else {
                replayed.refused.push((letter, "the config has no such table".into()));
                continue;
            };
            match store.replay(schema, &letter).await {
                Ok(true) => {
                    replayed.applied += 1;
                    if let Ok(op) = letter.change(schema) {
                        replayed.rows.push((letter.table, op.key(schema).to_owned()));
                    }
                }
                // Another process has replayed it first.
                Ok(false) => {}
                Err(error) if error.is_data() => replayed.refused.push((letter, error.to_string())),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
