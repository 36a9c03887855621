//! Filling memory from the database, before it is served.

use super::{EarlyFollowing, Memory, Tier};
use crate::start_error::StartError;
use forebay_drain::Settings;

impl Tier {
    /// Takes over tables in memory whose columns have changed, so that they have the columns to be served.
    pub(crate) async fn inherit(&self) -> Result<(), StartError> {
        match &self.memory {
            // The tables of a log are identified by their columns.
            Memory::Embedded(_) => Ok(()),
            Memory::Remote(remote) => remote.inherit().await,
        }
    }

    /// Fills memory with the rows that only the database has. Each table is served when it is loaded.
    pub async fn load(&self) -> Result<(), StartError> {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.load(&self.store, None).await,
            Memory::Remote(remote) => remote.load(&self.store).await,
        }
    }

    /// Like [`Tier::load`], and starts the drain. `begun`: following has begun before.
    pub(crate) async fn load_and_drain(
        &self,
        begun: Option<&EarlyFollowing>,
        settings: Settings,
    ) -> Result<(), StartError> {
        match &self.memory {
            Memory::Embedded(embedded) => {
                embedded.load(&self.store, begun).await?;
                self.start_drain(settings)
            }
            // A load may have to wait until changes written under other columns are drained.
            Memory::Remote(remote) => {
                self.start_drain(settings)?;
                remote.load(&self.store).await
            }
        }
    }
}
