//! A request under way: what it tells of its upstream, and where its connection goes.

use crate::health::Balance;
use crate::link::Link;
use crate::pool::Pools;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Counts a request of an upstream until it is over.
#[derive(Debug)]
pub(crate) struct InFlight {
    balance: Arc<Balance>,
    pools: Arc<Pools>,
    worker: usize,
    index: usize,
}

impl InFlight {
    pub(crate) fn begin(balance: &Arc<Balance>, pools: &Arc<Pools>, worker: usize, index: usize) -> InFlight {
        balance.upstreams[index].in_flight.fetch_add(1, Relaxed);
        InFlight { balance: balance.clone(), pools: pools.clone(), worker, index }
    }

    pub(crate) fn failed(&self) {
        self.balance.upstreams[self.index].failed(self.balance.now_ms());
    }

    pub(crate) fn succeeded(&self) {
        self.balance.upstreams[self.index].succeeded();
    }

    /// Keeps the connection for the next request.
    pub(crate) fn keep(&self, link: Box<Link>) {
        self.pools.put(self.worker, self.index, link);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.balance.upstreams[self.index].in_flight.fetch_sub(1, Relaxed);
    }
}
