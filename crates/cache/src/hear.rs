//! What other servers drop: generations that change on the shared level change here.
//!
//! While a connection that would tell is missing, and once more when it is there again, everything
//! here counts as dropped; meanwhile `burst` bounds how old an answer can be.

use crate::level::{Shared, TAG_PREFIX};
use crate::stats::Stats;
use crate::tags::Generations;
use forebay_redis::Invalidation;
use std::sync::atomic::Ordering::Relaxed;

/// Hears, looks for a shared level that was away and tells it what it missed, for as long as it is polled.
pub(crate) async fn hear(shared: &Shared, generations: &Generations, stats: &Stats) {
    let mut invalidations = shared.client.invalidations(TAG_PREFIX.as_bytes());
    let heard = async {
        while let Some(invalidation) = invalidations.next().await {
            match invalidation {
                Invalidation::Keys(keys) => {
                    for key in &keys {
                        let tag = key.strip_prefix(TAG_PREFIX.as_bytes()).unwrap_or(key);
                        generations.drop_tag(tag);
                    }
                    stats.drops.fetch_add(keys.len() as u64, Relaxed);
                }
                Invalidation::Everything => generations.drop_all(),
            }
        }
    };
    tokio::join!(heard, shared.watch());
}
