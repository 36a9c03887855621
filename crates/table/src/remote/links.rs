//! Links to tiers, one set for each thread: a link's connections belong to the runtime that uses them.

use super::table::RemoteTable;
use forebay_redis::{Client, Link};
use std::cell::RefCell;

thread_local! {
    /// Searched linearly: a process has one tier, or a few.
    static LINKS: RefCell<Vec<(Client, Link)>> = const { RefCell::new(Vec::new()) };
}

impl RemoteTable {
    /// This thread's link to the tier.
    pub(crate) fn link(&self) -> Link {
        let client = &self.tier.client;
        LINKS.with_borrow_mut(|links| {
            if let Some((_, link)) = links.iter().find(|(known, _)| known.is_same(client)) {
                return link.clone();
            }
            let link = client.link();
            links.push((client.clone(), link.clone()));
            link
        })
    }
}
