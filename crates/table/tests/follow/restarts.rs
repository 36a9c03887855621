//! Starts, also while the database is unreachable; checkpoints; ends.

use super::*;

impl World<'_> {
    /// Starts, and runs the first list of writes before the drain reads the database, and the second before
    /// the first poll does.
    pub(super) fn open(&mut self, is_alone: bool, [first, second]: [Vec<Op>; 2]) {
        let log = open_log(&self.dir.join("log"), forebay_log::Durability::Async);
        let spec = TableSpec {
            schema: self.schema.clone(),
            others: Others::Followed,
            ordered: true,
            rules: Arc::default(),
        };
        let source = Arc::<Store>::default();
        let tables = Tables::open(log.clone(), self.dir, self.limit_bytes, vec![spec], source).unwrap();
        let table = tables.all()[0].clone();
        let (place, position) = (tables.checkpoint_place(), self.database.position);
        for key in 0..KEYS {
            let known = self.known.entry(key).or_default();
            known.image = self.database.rows.get(&key).cloned();
            known.at = position;
            known.own.retain(|(at, _)| *at > position);
        }
        let loaded = tables.load_checkpoint();
        assert_eq!((&loaded.notes[..], loaded.saved.is_some()), (&[][..], place.is_some()));
        match place {
            // The stream reports what others change from then on.
            None => self.database.read = self.database.told.len(),
            Some(place) => self.database.read = place.parse().unwrap(),
        }
        if !table.is_from_checkpoint() {
            for row in self.database.rows.values() {
                table.load(Row::from_values(&self.schema, row).as_ref());
            }
            tables.replay(position).unwrap();
        } else if is_alone {
            tables.replay(tables.settled_at()).unwrap();
        } else {
            let unsettled_rows = tables.unsettled_rows(|_| position).unwrap();
            tables.replay(position).unwrap();
            unsettled_rows.iter().for_each(|(table, key)| tables.undo_followed_row(table, key.as_ref()));
        }
        if table.is_from_checkpoint() {
            table.set_loaded();
            self.opened = Some((log.clone(), tables.clone(), table.clone()));
            self.is_unread = true;
            first.into_iter().for_each(|op| self.write_unread(op));
            self.again.extend(tables.settle(|_| position, |_| Outcome::Unknown));
            tables.undo_unsettled(|_| position).unwrap();
            tables.drained(position);
            second.into_iter().for_each(|op| self.write_unread(op));
            table.want(self.again.iter().map(|again| again.key.clone()), false);
            self.is_unread = false;
        }
        for (key, known) in &self.known {
            if let (None, Some((last, _))) = (&known.image, known.own.last()) {
                self.unsure.insert(*key, *last);
            }
        }
        tables.settled(position);
        self.opened = Some((log, tables, table));
        self.look_at_all();
        self.table().set_loaded();
    }

    /// A step before any poll: memory has not been told of others' changes.
    fn write_unread(&mut self, op: Op) {
        let table = self.opened.as_ref().unwrap().2.clone();
        let row = |key, code, length| values(key, code, length);
        let shown = self.shown();
        let (key, own, written) = match op {
            Op::Insert(key, code, length) => {
                let values = row(key, code, length);
                let written = table.insert(Row::from_values(&self.schema, &values).as_ref());
                (key, Own::Put(values), written)
            }
            Op::Upsert(key, code, length) => {
                let values = row(key, code, length);
                let written = table.upsert(Row::from_values(&self.schema, &values).as_ref());
                (key, Own::Put(values), written)
            }
            Op::SetCode(key, to) => {
                let changes = [(CODE, code(to))];
                let changes = changes.each_ref().map(|(column, value)| (*column, value.as_ref()));
                let written = table.update(Value::Bigint(key).as_ref(), &changes, |_| ());
                (key, Own::Set(CODE, code(to)), written.map(|((), at)| at))
            }
            op @ (Op::Strict(_) | Op::Drain(..) | Op::Undo | Op::Settle) => return self.run(op),
            _ => return,
        };
        let Ok(at) = written else { return };
        let code = match &own {
            Own::Put(values) => &values[CODE],
            Own::Set(_, code) => code,
            Own::Add(_) | Own::Delete => unreachable!("none of the three"),
        };
        self.check_own(key, code);
        if shown.get(&key) != Some(code) {
            // Others may have taken the value from a row that memory shows with it.
            self.check_intended(key, code);
        }
        self.did(key, at, own);
    }

    /// The unique values of the rows that memory shows.
    fn shown(&self) -> BTreeMap<i64, Value> {
        let code = |row: RowRef<'_>| row.to_values(&self.schema).swap_remove(CODE);
        let shown = |key| match self.table().get(Value::Bigint(key).as_ref(), Counters::Shown, code) {
            Read::Found(code, _) => Some((key, code)),
            Read::Missing(_) | Read::Fetch(_) => None,
        };
        (0..KEYS).filter_map(shown).collect()
    }

    /// Polls until memory has everything that was reported before.
    fn look_at_all(&mut self) {
        self.look();
        self.apply();
        while self.opened.as_ref().unwrap().1.following().unwrap().wanted() > 0 {
            let before = self.opened.as_ref().unwrap().1.following().unwrap().wanted();
            self.look();
            self.apply();
            if self.opened.as_ref().unwrap().1.following().unwrap().wanted() >= before {
                // The rest waits for the drain.
                break;
            }
        }
    }

    /// Takes a checkpoint, while these operations happen.
    pub(super) fn checkpoint(&mut self, meanwhile: Vec<Op>) {
        let tables = self.opened.as_ref().unwrap().1.clone();
        tables.save_settled().unwrap();
        let state = std::cell::RefCell::new((self, meanwhile.into_iter()));
        let goes_on = || {
            let (world, meanwhile) = &mut *state.borrow_mut();
            meanwhile.next().into_iter().for_each(|op| world.run(op));
            true
        };
        tables.save_checkpoint(goes_on).unwrap();
    }

    pub(super) fn close(&mut self) {
        self.seen = None;
        self.again.clear();
        self.undecided.clear();
        self.unsure.clear();
        self.refused.extend(self.database.refused.drain(..).map(|(key, _)| key));
        // The loaded rows contain the intents that the database has decided.
        self.database.outcomes.clear();
        self.waiting.clear();
        let position = self.database.position;
        self.pending.retain(|at, _| *at > position);
        let (log, tables, table) = self.opened.take().unwrap();
        // The checkpoint may be older.
        tables.save_settled().unwrap();
        drop((tables, table));
        log.close().unwrap();
    }
}
