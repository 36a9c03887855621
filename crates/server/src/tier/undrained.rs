//! Draining everything, and what is said when only the changes of stopped tables are left.

use super::{Memory, Tier};
use crate::problem::Problem;
use forebay_drain::{Error, Kind, left, left_remote};

impl Tier {
    /// Resolves when the database has applied everything that was acknowledged before this call.
    ///
    /// # Errors
    /// When only changes of stopped tables are left, also how many, and what can be done about them.
    pub async fn finish_drain(&self) -> Result<(), Problem> {
        let drain = self.drain.wait().await;
        let Err(error) = drain.drain_all().await else { return Ok(()) };
        let mut detail = error.to_string();
        if error.kind() == Kind::TableStopped {
            let what = self.what_is_left().await;
            let what = what.unwrap_or_else(|error| format!("how many is not known: {error}"));
            detail = format!("{detail}. {what}");
        }
        Err(Problem::unavailable(detail))
    }

    async fn what_is_left(&self) -> Result<String, Error> {
        let left = match &self.memory {
            Memory::Embedded(memory) => left(&memory.log, memory.tables.catalogue(), &self.store).await?,
            Memory::Remote(memory) => left_remote(memory.tables.queue(), &memory.link, &self.store).await?,
        };
        let changes = |count| if count == 1 { "change" } else { "changes" };
        let each = left.iter().map(|(table, count)| format!("{count} {} of table {table}", changes(*count)));
        let each = each.collect::<Vec<_>>().join(", ");
        let again = "They are drained when the database takes them: if others have dropped the table, make it again (it \
            may be empty) and drain again";
        let give_up = match &self.memory {
            Memory::Embedded(memory) => format!(
                ". To give them up instead, stop the server and move {} away, in which nothing else is left to be drained, and \
                 set pending = 0 in the row of forebay_position with log {:032x}; a table that is not to come back leaves the \
                 config as well",
                memory.data_dir.display(),
                memory.log.id().0,
            ),
            Memory::Remote(_) => String::new(),
        };
        Ok(format!("Left to be drained: {each}. {again}{give_up}"))
    }
}
