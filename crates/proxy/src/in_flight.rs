//! A request in progress: reports the outcome to its upstream's health, and returns its connection to the
//! pool.

use crate::health::Balance;
use crate::link::Link;
use crate::pool::Pools;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Counts a request to an upstream until it is over.
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

    /// Stores the connection for the next request.
    pub(crate) fn keep(&self, link: Box<Link>) {
        self.pools.put(self.worker, self.index, link);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.balance.upstreams[self.index].in_flight.fetch_sub(1, Relaxed);
    }
}
