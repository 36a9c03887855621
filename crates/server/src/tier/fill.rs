//! Memory comes to hold what the database has, before it is served.

use super::{Begun, Memory, Tier};
use crate::start_error::StartError;
use forebay_drain::Settings;

impl Tier {
    /// Has memory hold the tables with the columns that they are to be served with.
    pub(crate) async fn succeed(&self) -> Result<(), StartError> {
        match &self.memory {
            // The log's own tables are found again by their columns.
            Memory::Embedded(_) => Ok(()),
            Memory::Remote(remote) => remote.succeed().await,
        }
    }

    /// Fills memory with what the database holds and memory does not. Serving waits for it table by table.
    pub async fn load(&self) -> Result<(), StartError> {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.load(&self.store, None).await,
            Memory::Remote(remote) => remote.load(&self.store).await,
        }
    }

    /// The same, and begins to drain. `begun`: the database tells what others commit.
    pub(crate) async fn load_and_drain(
        &self,
        begun: Option<&Begun>,
        settings: Settings,
    ) -> Result<(), StartError> {
        match &self.memory {
            Memory::Embedded(embedded) => {
                embedded.load(&self.store, begun).await?;
                self.start_drain(settings)
            }
            // A load may have to wait until what was written with other columns is drained.
            Memory::Remote(remote) => {
                self.start_drain(settings)?;
                remote.load(&self.store).await
            }
        }
    }
}
