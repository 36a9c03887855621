//! Places: how many requests may wait for one thing at a time, and how clients share them.
//!
//! A client gets a place while it has fewer than a fixed multiple of those that are free (the dynamic
//! threshold of Choudhury and Hahne, 1998). So alone it gets nearly all, several clients that want all get
//! equal numbers, and whoever has none finds a free one.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Places for requests of clients.
pub struct Places {
    max: usize,
    per_free: Multiple,
    taken: Mutex<Taken>,
}

/// How many places a client may have for a number of free ones: `times` for each `of`.
#[derive(Debug, Clone, Copy)]
pub struct Multiple {
    /// This many places
    pub times: usize,
    /// for so many free ones.
    pub of: usize,
}

#[derive(Default)]
struct Taken {
    count: usize,
    by_client: HashMap<u64, usize>,
}

/// A place of a client; free again when dropped.
pub struct Place {
    places: Arc<Places>,
    client: u64,
}

impl Places {
    /// `max` places.
    pub fn new(max: usize, per_free: Multiple) -> Arc<Places> {
        Arc::new(Places { max, per_free, taken: Mutex::default() })
    }

    /// How many are taken.
    pub fn count(&self) -> usize {
        self.taken.lock().count
    }

    /// A place for a client of this network ([`forebay_http::Client::network`]); `None`: it has its part.
    pub fn take(self: &Arc<Self>, client: u64) -> Option<Place> {
        let mut taken = self.taken.lock();
        let free = self.max.saturating_sub(taken.count);
        let Multiple { times, of } = self.per_free;
        let own = taken.by_client.entry(client).or_default();
        if free == 0 || *own > 0 && *own * of >= free * times {
            if *own == 0 {
                taken.by_client.remove(&client);
            }
            return None;
        }
        *own += 1;
        taken.count += 1;
        Some(Place { places: self.clone(), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.count -= 1;
        let own = taken.by_client.get_mut(&self.client).expect("a client with a place");
        *own -= 1;
        if *own == 0 {
            taken.by_client.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Multiple = Multiple { times: 16, of: 1 };

    /// Takes as many as a client gets.
    fn all(places: &Arc<Places>, client: u64) -> Vec<Place> {
        std::iter::from_fn(|| places.take(client)).collect()
    }

    #[test]
    fn a_client_alone_gets_nearly_all_and_leaves_some() {
        for (max, expected) in [(0, 0), (1, 1), (2, 2), (16, 16), (17, 16), (170, 160), (1000, 942)] {
            assert_eq!(all(&Places::new(max, MOST), 1).len(), expected, "{max}");
        }
        let places = Places::new(64, Multiple { times: 1, of: 8 });
        assert_eq!(all(&places, 1).len(), 8);
        assert!(places.take(2).is_some());
    }

    #[test]
    fn greedy_clients_end_with_equal_parts_and_a_new_one_finds_a_place() {
        let places = Places::new(1000, MOST);
        let mut held: Vec<Vec<Place>> = (0..10).map(|client| all(&places, client)).collect();
        assert!(held[0].len() > 8 * held[1].len());
        // Each answer frees a place, and everybody asks for more.
        for round in 0..2000 {
            let longest = held.iter().map(Vec::len).max().expect("ten clients");
            let client = held.iter().position(|of| of.len() == longest).expect("the longest");
            drop(held[client].pop());
            (0..10).for_each(|step| {
                let client = (round + step) % 10;
                held[client].extend(places.take(client as u64));
            });
        }
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert!(counts.iter().all(|count| (90..=110).contains(count)), "{counts:?}");
        assert!(places.take(99).is_some());
        drop(held);
        assert_eq!((places.count(), places.taken.lock().by_client.len()), (0, 0));
    }

    #[test]
    fn a_refusal_leaves_nothing_behind() {
        let places = Places::new(1, MOST);
        let place = places.take(1);
        assert!(place.is_some() && (2..100).all(|client| places.take(client).is_none()));
        assert_eq!((places.count(), places.taken.lock().by_client.len()), (1, 1));
    }
}
