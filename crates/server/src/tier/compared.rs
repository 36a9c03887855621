//! Compares memory with the database, once the drain has written what was acknowledged before.

use super::{Memory, Tier};
use crate::problem::Problem;
use forebay_drain::{DailyWindow, Differences};
use forebay_value::Timestamp;
use std::time::Duration;

/// How long a comparison waits for the drain.
const DRAIN_WAIT: Duration = Duration::from_secs(10);

/// Memory beside the database.
pub struct Compared {
    /// The differences, by table.
    pub tables: Vec<(String, Differences)>,
    /// Whether the database has all that was written before the comparison.
    pub is_drained: bool,
}

impl Tier {
    /// Compares memory and database, row by row, table by table. Waits before for the drain, unless it is
    /// paused or waits for its window.
    pub async fn verify(&self) -> Result<Compared, Problem> {
        let has_drained = self.has_drained().await;
        let mut tables = Vec::new();
        either!(&self.memory, memory => {
            for table in memory.tables.all() {
                let differences = memory.verify(table, &self.store).await;
                let differences = differences.map_err(|error| Problem::unavailable(error.to_string()))?;
                tables.push((table.schema().name.clone(), differences));
            }
        });
        let is_drained = has_drained || tables.iter().all(|(_, differences)| differences.undrained == 0);
        Ok(Compared { tables, is_drained })
    }

    /// Whether the database has all that was written before this call.
    async fn has_drained(&self) -> bool {
        let Some(drain) = self.drain.get() else { return false };
        let state = drain.state();
        let is_open = |window: DailyWindow| window.has_begun(Timestamp::now());
        let is_at_work = !state.paused && (state.early.is_some() || state.opening.is_none_or(is_open));
        is_at_work && matches!(tokio::time::timeout(DRAIN_WAIT, drain.drain_all()).await, Ok(Ok(())))
    }
}
