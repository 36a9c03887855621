//! Links that wait for the next request: one stack for each worker and upstream, the most recently used
//! first.
//!
//! Promises that a link stays on the runtime of its worker, and that a link is not reused if its upstream
//! has closed it or has sent unsolicited bytes. A task of each worker closes links that have been idle for
//! long, as long as there are idle links.

use crate::limits::{IDLE_CONNECTIONS_MAX, IDLE_SWEEPS_MAX, SWEEP_PERIOD};
use crate::link::Link;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The idle links of one worker.
#[derive(Debug)]
struct Idle {
    /// By upstream. Only the owning worker locks it, so there is no contention.
    #[allow(clippy::vec_box, reason = "a request has its link in a box, which is kept with it")]
    links: Box<[Mutex<Vec<Box<Link>>>]>,
    is_swept: AtomicBool,
}

/// All idle links of a proxy.
#[derive(Debug)]
pub(crate) struct Pools(Box<[Idle]>);

impl Pools {
    pub(crate) fn new(workers: usize, upstreams: usize) -> Pools {
        let links = || std::iter::repeat_with(Mutex::default).take(upstreams).collect();
        let idle = || Idle { links: links(), is_swept: AtomicBool::new(false) };
        Pools(std::iter::repeat_with(idle).take(workers).collect())
    }

    /// Takes a link that can be used.
    pub(crate) fn take(&self, worker: usize, upstream: usize) -> Option<Box<Link>> {
        let mut links = self.0[worker].links[upstream].lock();
        std::iter::from_fn(|| links.pop()).find_map(|mut link| link.is_idle().then_some(link))
    }

    /// Stores a link after a complete answer. Must be called on its worker's runtime.
    pub(crate) fn put(self: &Arc<Self>, worker: usize, upstream: usize, mut link: Box<Link>) {
        link.rest();
        let idle = &self.0[worker];
        let mut links = idle.links[upstream].lock();
        if links.len() < IDLE_CONNECTIONS_MAX {
            links.push(link);
        }
        drop(links);
        if !idle.is_swept.load(Relaxed) {
            idle.is_swept.store(true, Relaxed);
            tokio::spawn(sweep(Arc::downgrade(self), worker));
        }
    }
}

/// Closes idle links until none is left.
async fn sweep(pools: Weak<Pools>, worker: usize) {
    loop {
        tokio::time::sleep(SWEEP_PERIOD).await;
        let Some(pools) = pools.upgrade() else { return };
        let idle = &pools.0[worker];
        let mut is_empty = true;
        for links in &idle.links {
            let mut links = links.lock();
            links.retain_mut(|link| {
                link.idle_sweeps += 1;
                link.idle_sweeps <= IDLE_SWEEPS_MAX && link.is_idle()
            });
            is_empty &= links.is_empty();
        }
        if is_empty {
            idle.is_swept.store(false, Relaxed);
            return;
        }
    }
}
