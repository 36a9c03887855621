//! The intents that are under way, by key. Each shard has one [`KeyIntents`], under its lock.

use crate::key::{Key, KeyRef};
use forebay_log::Position;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::hash::RandomState;

/// The intents of one key.
struct OfKey {
    /// Their positions, ascending. A replay may note them in another order, and they may end in another
    /// order.
    under_way: VecDeque<Position>,
    /// The position of the latest image of the row that was applied to memory: intents up to it are in the
    /// image, or were refused.
    seen: Position,
    /// How many of the intents are additions that memory applies when their outcome is known.
    additions: usize,
    /// What the intents add to columns; `None` once one of them competes with others.
    added: Option<Added>,
}

impl OfKey {
    fn last(&self) -> Position {
        *self.under_way.back().expect("a key is forgotten with its last intent")
    }
}

/// Whether an intent adds to a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Adds {
    /// It does something else.
    Nothing,
    /// To a tracked column: it competes with the other intents of its key.
    Alone,
    /// To this column this much, beside other additions.
    Beside(usize, i64),
}

impl Adds {
    fn beside(self) -> Option<(usize, i64)> {
        match self {
            Adds::Beside(column, delta) => Some((column, delta)),
            Adds::Alone | Adds::Nothing => None,
        }
    }
}

/// Columns and what is added to them.
type Added = SmallVec<[(usize, i64); 1]>;

/// The intents of a shard.
#[derive(Default)]
pub(crate) struct KeyIntents(HashMap<Key, OfKey, RandomState>);

impl KeyIntents {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last intent of a key.
    pub fn last(&self, key: KeyRef<'_>) -> Option<Position> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&key.to_owned()).map(OfKey::last)
    }

    /// The sum that intents will add to a column of a row. The error is the position of the last intent, when
    /// one of them is more than an addition.
    pub fn added(&self, key: KeyRef<'_>, column: usize) -> Result<i64, Position> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let Some(of_key) = self.0.get(&key.to_owned()) else { return Ok(0) };
        let added = of_key.added.as_ref().ok_or(of_key.last())?;
        Ok(added.iter().find(|(of, _)| *of == column).map_or(0, |(_, sum)| *sum))
    }

    /// Whether memory will apply an addition to a row of this key.
    pub fn is_adding(&self, key: KeyRef<'_>) -> bool {
        !self.0.is_empty() && self.0.get(&key.to_owned()).is_some_and(|of_key| of_key.additions > 0)
    }

    /// Notes an intent that begins.
    pub fn begin(&mut self, key: Key, position: Position, adds: Adds) {
        let of_key = self.0.entry(key).or_insert_with(|| OfKey {
            under_way: VecDeque::new(),
            seen: Position(0),
            additions: 0,
            added: Some(Added::new()),
        });
        let place = of_key.under_way.partition_point(|other| *other < position);
        of_key.under_way.insert(place, position);
        of_key.additions += usize::from(adds != Adds::Nothing);
        of_key.added =
            of_key.added.take().zip(adds.beside()).map(|(sums, (of, delta))| plus(sums, of, delta));
    }

    /// Memory will not apply an addition that is under way: its outcome will be seen in the row.
    pub fn doubt(&mut self, key: &Key, adds: Adds) {
        if let Some(of_key) = self.0.get_mut(key) {
            of_key.additions -= usize::from(adds != Adds::Nothing);
        }
    }

    /// Ends an intent: its outcome is known.
    pub fn end(&mut self, key: &Key, position: Position, adds: Adds) {
        let Some(of_key) = self.0.get_mut(key) else { return };
        if let Ok(place) = of_key.under_way.binary_search(&position) {
            of_key.under_way.remove(place);
            of_key.additions -= usize::from(adds != Adds::Nothing);
        }
        let less = |(sums, (of, delta)): (Added, (usize, i64))| plus(sums, of, delta.wrapping_neg());
        of_key.added = of_key.added.take().zip(adds.beside()).map(less);
        if of_key.under_way.is_empty() {
            self.0.remove(key);
        }
    }

    /// Notes that an image of the row with everything up to `at` was applied to memory.
    pub fn saw(&mut self, key: KeyRef<'_>, at: Position) {
        if self.0.is_empty() {
            return;
        }
        if let Some(of_key) = self.0.get_mut(&key.to_owned()) {
            of_key.seen = of_key.seen.max(at);
        }
    }

    /// Whether an applied image already contains the outcome of the intent at `position`.
    pub fn has_seen(&self, key: &Key, position: Position) -> bool {
        self.0.get(key).is_some_and(|of_key| of_key.seen >= position)
    }
}

/// Wrapping is safe in any order: each sum was checked before, and an overflow in between wraps back.
fn plus(mut sums: Added, column: usize, delta: i64) -> Added {
    match sums.iter_mut().find(|(of, _)| *of == column) {
        Some((_, sum)) => *sum = sum.wrapping_add(delta),
        None => sums.push((column, delta)),
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_addition_beside_other_writes_is_one() {
        let (mut intents, key) = (KeyIntents::default(), Key::Bigint(1));
        intents.begin(key.clone(), Position(10), Adds::Nothing);
        for adds in [Adds::Beside(1, 5), Adds::Alone] {
            intents.begin(key.clone(), Position(20), adds);
            assert!(intents.is_adding(KeyRef::Bigint(1)));
            intents.end(&key, Position(20), adds);
            assert!(!intents.is_adding(KeyRef::Bigint(1)));
        }
    }

    /// A restart may note a later intent before an earlier one, and learn its outcome before.
    #[test]
    fn a_competitor_waits_for_one_that_is_under_way() {
        let (mut intents, key) = (KeyIntents::default(), Key::Bigint(1));
        for position in [20, 10, 30] {
            intents.begin(key.clone(), Position(position), Adds::Nothing);
        }
        for (ended, last) in [(20, Some(30)), (30, Some(10)), (10, None)] {
            intents.end(&key, Position(ended), Adds::Nothing);
            assert_eq!(intents.last(KeyRef::Bigint(1)), last.map(Position));
        }
    }
}
