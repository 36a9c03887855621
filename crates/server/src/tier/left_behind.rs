//! What a data folder still holds when the config names another tier.

use super::embedded::open_log;
use crate::retry::{RetryReason, retry_while_unavailable};
use crate::start_error::StartError;
use forebay_config::model;
use forebay_database::Store;
use forebay_drain::{Changes, LastPosition};
use forebay_log::Position;
use std::time::Duration;

/// Refuses a start of another tier on a data folder whose log holds changes that the database lacks.
pub(super) async fn refuse_left_behind(
    memory: &model::Memory,
    keep: Duration,
    store: &Store,
    trouble: &RetryReason,
) -> Result<(), StartError> {
    if !memory.data_dir.join("log").exists() {
        return Ok(());
    }
    let (log, _) = match open_log(memory, keep) {
        Ok(opened) => opened,
        // Another server runs on the folder; if it has claimed one of the tables, this one waits for it.
        Err(error) if matches!(error.kind(), forebay_log::Kind::Locked { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let positions = retry_while_unavailable(trouble, "the drain's position", || store.positions()).await?;
    let stored = positions.iter().find(|stored| stored.log == log.id().0);
    let known = LastPosition::read(&memory.data_dir, &log)?.at_least().max(log.released());
    let reached = stored.map_or(known, |stored| Position(stored.position));
    let (changes, id) = (Changes::behind(&log, reached)?, log.id());
    log.close()?;
    if changes.all == 0 {
        return Ok(());
    }
    let folder = memory.data_dir.display();
    let message = format!(
        "{folder} holds the log of memory in the process (log {id}) with {} changes that are not in {}, and memory.url now \
         names another tier, which would not have them. Drain them first: `forebay drain CONFIG --memory embedded:{folder}`. If \
         they are to be lost, move {folder}/log away.",
        changes.all,
        store.describe_url(),
    );
    Err(message.into())
}
