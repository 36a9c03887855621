//! The way to a tier from any thread: a link's connections live on the runtime that uses them, so each thread
//! has links of its own.

use super::table::RemoteTable;
use forebay_redis::{Client, Link};
use std::cell::RefCell;

thread_local! {
    /// A process has one tier, or a few.
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
