//! Tables whose columns change.
//!
//! A table with other columns has another id, and its rows are loaded anew, from the database. What was
//! written before stands in the queues with the id from before, and is drained by the columns from before.
//! What must stay true:
//! - One id of a table is present in a shard: that of the server that has come last with other columns. The
//!   rows of all others are dropped, so that none is served when an id comes back.
//! - The rows of the present id are read from the database once everything is there that was written with
//!   another one.
//! - A server with another id than the present one neither writes nor loads: the shards are not loaded for
//!   it. It says so in `/ready`, and is to be replaced.
//!
//! The shard's meta has `P<name>`: the present id, and the position of the newest entry of the queue when it
//! became so. A table that has had one id only has no such field.

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
