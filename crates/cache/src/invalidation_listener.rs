//! Drops by other servers: a generation that changes on the shared level changes here.
//!
//! When an invalidation connection is lost, and again when it is restored, every entry of this
//! process counts as dropped. In between, `local` bounds the age of an answer.

use crate::level::SharedLevel;
use crate::stats::Stats;
use crate::tags::Generations;
use forebay_redis::Invalidation;
use std::sync::atomic::Ordering::Relaxed;

/// Applies invalidations, and recovers a shared level that was unavailable. Runs until it is dropped.
pub(crate) async fn listen(shared: &SharedLevel, generations: &Generations, stats: &Stats) {
    let prefix = shared.tag_prefix();
    let mut invalidations = shared.client.invalidations(prefix.as_bytes());
    let listening = async {
        while let Some(invalidation) = invalidations.next().await {
            match invalidation {
                Invalidation::Keys(keys) => {
                    for key in &keys {
                        let tag = key.strip_prefix(prefix.as_bytes()).unwrap_or(key);
                        generations.drop_tag(tag);
                    }
                    stats.drops.fetch_add(keys.len() as u64, Relaxed);
                }
                Invalidation::Everything => generations.drop_all(),
            }
        }
    };
    tokio::join!(listening, shared.recover());
}
