//! Dead letters of a running server: listing them, and applying them again.

use super::{Memory, Tier};
use crate::problem::Problem;
use forebay_database::DeadLetter;
use forebay_drain::{Error, Progress, import_dead_letters, replay};
use serde_json::{Value, json};

/// The most dead letters that are listed.
const LETTERS_SHOWN: usize = 100;

impl Tier {
    /// Applies dead letters again, after the queued changes, and has memory read their rows again.
    pub(crate) async fn replay(&self) -> Result<Value, Problem> {
        let drain = self.drain.wait().await;
        if drain.state().paused {
            return Err(Problem::new(
                409,
                "the drain is paused, and what is queued may be newer: resume it first",
            ));
        }
        self.finish_drain().await?;
        let failed = |error: Error| Problem::unavailable(error.to_string());
        if let Memory::Embedded(embedded) = &self.memory {
            import_dead_letters(&embedded.data_dir, &self.store).await.map_err(failed)?;
        }
        let tables = self.tables();
        let schemas = tables.all().iter().map(|table| (table.schema().name.clone(), table.schema().clone()));
        let schemas = schemas.collect();
        let replayed = replay(&self.store, &schemas, &Progress::default()).await;
        let replayed = replayed.map_err(failed)?;
        for (table, key) in replayed.rows {
            self.refresh(&table, key).await?;
        }
        let refused =
            replayed.refused.iter().map(|(letter, reason)| json!({ "id": letter.id, "reason": reason }));
        Ok(json!({ "applied": replayed.applied, "refused": refused.collect::<Vec<_>>() }))
    }

    /// The newest dead letters in the database, and their total number.
    pub(crate) async fn list_dead_letters(&self) -> Result<Value, Problem> {
        let failed = |error: forebay_database::Error| Problem::unavailable(error.to_string());
        let count = self.store.dead_letter_count().await.map_err(failed)?;
        let letters = self.store.dead_letters(LETTERS_SHOWN).await.map_err(failed)?;
        let tables = self.tables();
        let letters = letters.into_iter().map(|letter| {
            let DeadLetter { id, table, op, row, reason, at, .. } = letter;
            // Of the row only its key: the rest is in the database, for those who may read it there.
            let schema = tables.all().iter().map(|table| table.schema()).find(|schema| schema.name == table);
            let row = serde_json::from_str::<Value>(&row).unwrap_or_default();
            let key = schema.map(|schema| row[&schema.key_column().name].to_string());
            json!({ "id": id, "table": table, "op": op, "key": key, "reason": reason, "at": at.to_string() })
        });
        Ok(json!({ "count": count, "letters": letters.collect::<Vec<_>>() }))
    }
}
