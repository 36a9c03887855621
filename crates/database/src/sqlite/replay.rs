//! Dead letters once more: read in order, applied again.

use super::Sqlite;
use super::change::TableStatements;
use super::errors::map;
use super::writer::Session;
use crate::{DeadLetter, Error};
use forebay_value::Schema;
use std::sync::Arc;

impl Sqlite {
    pub(crate) async fn dead_letters_after(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        let mut letters = self.dead_letters(usize::MAX).await?;
        letters.retain(|letter| letter.id > after);
        letters.reverse();
        letters.truncate(limit);
        Ok(letters)
    }

    /// Applies a dead letter's change again and deletes the letter, both or neither. False: the letter is gone.
    pub(crate) async fn replay(&self, schema: &Arc<Schema>, letter: &DeadLetter) -> Result<bool, Error> {
        let (op, schema, id) = (letter.change(schema)?, schema.clone(), letter.id);
        let replay = move |session: &mut Session| {
            session.transaction(|session| {
                let deleted = session
                    .connection
                    .execute("DELETE FROM forebay_dead_letter WHERE id = ?1", [id])
                    .map_err(map)?;
                if deleted == 1 {
                    TableStatements::new(&session.connection, &schema).execute(&op)?;
                }
                Ok(deleted == 1)
            })
        };
        self.writer.urgent(replay).await
    }
}
