//! The checks after a write, and when everything is drained, reported and applied.

use super::*;

impl World<'_> {
    /// A row must not get a unique value that another row has by a write of this process.
    pub(super) fn check_own(&self, key: i64, code: &Value) {
        let has_it = |(other, known): &(&i64, &Known)| {
            let sets = |own: &Own| matches!(own, Own::Put(_) | Own::Set(CODE, _));
            // What was read may be older than what this process has written.
            let has = |row: &Values| row[CODE] == *code;
            let is_written =
                self.database.own_codes.contains(other) && self.database.rows.get(other).is_some_and(has);
            let is_own = is_written || known.own.iter().any(|(_, own)| sets(own));
            **other != key && is_own && known.fold().is_some_and(|row| row[CODE] == *code)
        };
        let is_sure = |key: &i64| !code.is_null() && !self.refused.contains(key);
        let holder = self.known.iter().find(|held| is_sure(held.0) && has_it(held)).filter(|_| is_sure(&key));
        assert_eq!(holder.map(|(other, _)| other), None, "{code:?} was given to {key} as well");
    }

    /// A row must not get a unique value that an intent may give to another row.
    pub(super) fn check_intended(&self, key: i64, code: &Value) {
        let intended = self.pending.values().filter(|(other, own)| *other != key && own.sets_code(code));
        assert_eq!(intended.map(|(other, _)| other).next(), None, "{code:?} was given to {key} as well");
    }

    /// A row that does not have a unique value must not get it while another row has it, as far as memory was
    /// told.
    pub(super) fn check_free(&self, key: i64, code: &Value) {
        let has_it = |key: &i64| {
            let row = self.known[key].fold();
            row.is_some_and(|row| !code.is_null() && row[CODE] == *code)
        };
        if has_it(&key) {
            // Others may have moved the value to another row, and memory has not been told yet.
            return;
        }
        self.check_intended(key, code);
        let has = |row: &Values| row[CODE] == *code && !code.is_null();
        let holder = self.undecided.iter().find(|(other, (taken, _))| {
            **other != key && taken == code && self.database.rows.get(other).is_some_and(has)
        });
        assert_eq!(holder, None, "{code:?} was given to {key}, and was not heard to be free");
        if !self.unsure.contains_key(&key) {
            let holder = self.known.keys().find(|other| has_it(other) && !self.unsure.contains_key(other));
            assert_eq!(holder, None, "{code:?} was given to {key} as well");
        }
    }

    /// Drains, reports and applies everything.
    pub(super) fn settle(&mut self) {
        // Writes that waited for an outcome, or for a row, may follow.
        for _ in 0..10 * (1 + self.waiting.len()) {
            self.drain(usize::MAX, 0);
            self.undo();
            self.tell();
            self.look();
            self.apply();
            self.go_on();
        }
        assert!(self.waiting.is_empty() && self.pending.is_empty());
        // Two polls that were begun before, and those for the keys that are wanted after them, three keys at
        // a time.
        for _ in 0..4 + 2 * KEYS {
            self.look();
            self.apply();
        }
        assert_eq!(self.opened.as_ref().unwrap().1.following().unwrap().wanted(), 0);
    }

    /// Checks that memory equals the database.
    pub(super) fn check(&mut self) {
        self.settle();
        let table = self.table();
        assert_eq!(table.count().0, self.database.rows.len() as u64);
        for name in ["name 0", "name 1", "name 2"] {
            let expected = self.database.rows.values().filter(|row| row[NAME] == text(name)).count();
            assert_eq!(table.count_by(NAME, text(name).as_ref()).0, expected as u64);
        }
        let mut keys = Vec::new();
        table.for_each(|entry| keys.push(number(entry.key)));
        keys.sort_unstable();
        assert_eq!(keys, self.database.rows.keys().copied().collect::<Vec<_>>());
        for key in 0..KEYS {
            self.check_row(key);
        }
        let table = self.table();
        for taken in 0..8 {
            let row = Row::from_values(&self.schema, &values(KEYS, Some(taken), 9));
            let is_taken = self.database.rows.values().any(|row| row[CODE] == code(Some(taken)));
            match table.insert(row.as_ref()) {
                Err(WriteError::Conflict { rule: CODE, .. }) => assert!(is_taken, "code {taken} is free"),
                Err(WriteError::MemoryFull) => {}
                Ok(_) => {
                    assert!(!is_taken, "code {taken} is taken");
                    table.delete(Value::Bigint(KEYS).as_ref(), |_| ()).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        self.drain(usize::MAX, 0);
        self.undo();
    }

    pub(super) fn check_row(&mut self, key: i64) {
        for _ in 0..3 {
            let show = |row: RowRef<'_>| row.to_values(&self.schema);
            let stored = self.database.rows.get(&key);
            match self.table().get(Value::Bigint(key).as_ref(), Counters::Shown, show) {
                Read::Found(values, _) => return assert_eq!(Some(&values), stored),
                Read::Missing(_) => return assert_eq!(None, stored),
                Read::Fetch(_) => self.table().want([Value::Bigint(key)], true),
            }
            self.look();
            self.apply();
        }
        assert!(self.limit_bytes < 1 << 20, "key {key} does not come into memory");
    }
}
