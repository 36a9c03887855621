//! Tables whose columns change.
//!
//! A table with other columns has another id, and its rows are loaded anew from the database. Earlier changes
//! are in the queues with the old id, and are drained by the old columns. What must stay true:
//! - One id of a table is present in a shard: that of the server that was started last with other columns.
//!   The rows of all other ids are dropped, so that none is served when an id is used again.
//! - The rows of the present id are read from the database once the database has everything that was written
//!   with another id.
//! - A server with another id than the present one neither writes nor loads: for it the shards are not
//!   loaded. It reports that in `/ready`, and is to be replaced.
//!
//! The shard's meta has `P<name>`: the present id, and the position of the queue's newest entry when the id
//! became present. A table that has had only one id has no such field.

use super::names::{self, TableNames};
use super::scripts;
use super::tier::{Call, Tier};
use crate::error::HotError;
use crate::record::TableId;
use forebay_redis::Link;
use forebay_value::Schema;
use futures_util::future::try_join_all;

impl Tier {
    /// Makes this id of a table the one that is present.
    pub async fn succeed(&self, link: &Link, own: TableId, schema: &Schema) -> Result<(), HotError> {
        let catalogue = self.catalogue.read().clone();
        let ids: Vec<_> = catalogue.tables().filter(|(_, known)| known.name == schema.name).collect();
        if ids.len() < 2 {
            return Ok(());
        }
        let shards = self.shards.iter().map(|shard| {
            let call = || {
                let mut keys = vec![shard.meta.clone(), shard.stream.clone()];
                let mut args = vec![names::present_field(&schema.name), own.to_string().into_bytes()];
                for (id, known) in &ids {
                    keys.extend(TableNames::new(shard, *id, known).everything(known));
                    args.push(names::loaded_field(*id));
                }
                Call { script: &scripts::SUCCEED, keys, args }
            };
            self.write(link, shard.number, call)
        });
        try_join_all(shards).await.map(drop)
    }
}
