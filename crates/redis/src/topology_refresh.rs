//! Keeps the topology up to date: a failover, a moved slot and a new replica are noticed here, by the next
//! refresh or by a MOVED.

use crate::addresses::Address;
use crate::connection::Dialer;
use crate::discover::discover;
use crate::error::Error;
use crate::limits;
use crate::map::Map;
use crate::options::{Options, Topology};
use crate::slot::Slot;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The state that all links of a client share.
pub(crate) struct Inner {
    pub(crate) dialer: Dialer,
    pub(crate) options: Options,
    pub(crate) topology: Topology,
    pub(crate) map: RwLock<Arc<Map>>,
    /// The version of the map, so that links notice a new map without a lock.
    pub(crate) version: AtomicU64,
    /// When the last refresh of the topology ended; locked during a refresh, so that one runs at a time.
    pub(crate) refreshed_at: tokio::sync::Mutex<Instant>,
    pub(crate) turn: AtomicUsize,
}

impl Inner {
    pub(crate) fn map(&self) -> Arc<Map> {
        self.map.read().clone()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether a refresh can change the topology.
    pub(crate) fn is_watched(&self) -> bool {
        self.topology != Topology::Single
    }

    /// Number of replicas, up or down, that the shard of this primary is known to have.
    pub(crate) fn replicas_known(&self, primary: &Address) -> u32 {
        let map = self.map();
        map.shards.iter().find(|shard| shard.primary == *primary).map_or(0, |shard| shard.replicas_known)
    }

    fn publish(&self, map: Map) {
        let mut current = self.map.write();
        if **current != map {
            *current = Arc::new(map);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Refreshes the topology, unless another call has done so since this one began.
    ///
    /// # Errors
    /// As [`discover`]; the map is then unchanged.
    pub(crate) async fn refresh(&self) -> Result<(), Error> {
        if !self.is_watched() {
            return Ok(());
        }
        let called_at = Instant::now();
        let mut refreshed_at = self.refreshed_at.lock().await;
        if *refreshed_at > called_at {
            return Ok(());
        }
        sleep_until(*refreshed_at + Duration::from_millis(limits::REFRESH_MS_MIN)).await;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let found = discover(&self.dialer, Some(&self.map()), turn).await;
        *refreshed_at = Instant::now();
        self.publish(found?);
        Ok(())
    }

    /// Refreshes the topology if the last refresh ended at least [`limits::REFRESH_MS`] ago.
    pub(crate) async fn refresh_if_old(&self) -> Result<(), Error> {
        let old = match self.refreshed_at.try_lock() {
            Ok(refreshed_at) => refreshed_at.elapsed() >= Duration::from_millis(limits::REFRESH_MS),
            Err(_) => false,
        };
        if old { self.refresh().await } else { Ok(()) }
    }

    /// Applies a MOVED. Returns whether the node was known.
    pub(crate) fn moved(&self, slot: Slot, address: &Address) -> bool {
        let Some(map) = self.map().moved(slot, address) else { return false };
        self.publish(map);
        true
    }
}
