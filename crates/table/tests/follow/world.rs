//! The steps: each acts on memory or on the database.

use super::*;

impl World<'_> {
    pub(super) fn table(&self) -> &Table {
        &self.opened.as_ref().unwrap().2
    }

    pub(super) fn did(&mut self, key: i64, position: Position, own: Own) {
        self.known.get_mut(&key).unwrap().own.push((position, own));
    }

    pub(super) fn own(&mut self, op: Op) {
        let table = self.opened.as_ref().unwrap().2.clone();
        let schema = self.schema.clone();
        let show = |row: RowRef<'_>| row.to_values(&schema);
        match op {
            Op::Insert(key, code, length) => {
                let values = values(key, code, length);
                if let Ok(at) = table.insert(Row::from_values(&schema, &values).as_ref()) {
                    assert_eq!(self.known[&key].fold(), None, "an insert beside a row");
                    self.check_free(key, &values[CODE]);
                    self.did(key, at, Own::Put(values));
                }
            }
            Op::Upsert(key, code, length) => {
                let values = values(key, code, length);
                if let Ok(at) = table.upsert(Row::from_values(&schema, &values).as_ref()) {
                    self.check_free(key, &values[CODE]);
                    self.did(key, at, Own::Put(values));
                }
            }
            Op::SetCode(key, to) => self.set(key, CODE, code(to)),
            Op::SetBody(key, to) => self.set(key, BODY, body(to)),
            Op::SetClicks(key, to) => self.set(key, CLICKS, Value::Bigint(to)),
            Op::Increment(key, delta) => {
                match table.increment(Value::Bigint(key).as_ref(), CLICKS, delta, show) {
                    Ok(done) => {
                        if !done.shown[CLICKS].is_null() {
                            self.did(key, done.mark, Own::Add(delta));
                        }
                        self.known[&key].check(done.shown);
                    }
                    Err(error) => self.refused(key, &error),
                }
            }
            Op::Delete(key) => match table.delete(Value::Bigint(key).as_ref(), show) {
                Ok((shown, at)) => {
                    self.known[&key].check(shown);
                    self.did(key, at, Own::Delete);
                }
                Err(error) => self.refused(key, &error),
            },
            _ => unreachable!("an operation of this process"),
        }
    }

    pub(super) fn set(&mut self, key: i64, column: usize, value: Value) {
        let table = self.opened.as_ref().unwrap().2.clone();
        let schema = self.schema.clone();
        let show = |row: RowRef<'_>| row.to_values(&schema);
        match table.update(Value::Bigint(key).as_ref(), &[(column, value.as_ref())], show) {
            Ok((shown, at)) => {
                if column == CODE {
                    self.check_free(key, &value);
                }
                self.did(key, at, Own::Set(column, value));
                self.known[&key].check(shown);
            }
            Err(error) => self.refused(key, &error),
        }
    }

    pub(super) fn refused(&self, key: i64, error: &WriteError) {
        match error {
            WriteError::Missing { .. } => assert_eq!(self.known[&key].fold(), None),
            WriteError::Conflict { rule, .. } => assert_eq!(*rule, CODE),
            WriteError::Fetch(_) => self.table().want([Value::Bigint(key)], true),
            WriteError::Pending(at) => {
                let is_unread = !self.again.is_empty();
                assert!(is_unread || self.pending.contains_key(at), "{at} is known");
            }
            WriteError::Overflow { .. } | WriteError::MemoryFull | WriteError::Busy => {}
            error => panic!("{error:?}"),
        }
    }

    pub(super) fn others(&mut self, op: Op) {
        let database = &mut self.database;
        match op {
            Op::OthersPut(key, code, length) => {
                let values = values(key, code, length);
                if !database.has_code(key, &values[CODE]) {
                    database.own_codes.remove(&key);
                    database.rows.insert(key, values);
                    database.told.push(key);
                }
            }
            Op::OthersSet(key, length) => {
                if let Some(row) = database.rows.get_mut(&key) {
                    row[BODY] = body(length);
                    database.told.push(key);
                }
            }
            Op::OthersAdd(key, delta) => {
                if let Some(Value::Bigint(number)) = database.rows.get_mut(&key).map(|row| &mut row[CLICKS]) {
                    *number = number.saturating_add(delta);
                    database.told.push(key);
                }
            }
            Op::OthersDelete(key) => {
                if database.rows.remove(&key).is_some() {
                    database.told.push(key);
                }
            }
            Op::OthersSwap(one, other) => {
                if one != other && database.rows.contains_key(&one) && database.rows.contains_key(&other) {
                    let codes = (database.rows[&one][CODE].clone(), database.rows[&other][CODE].clone());
                    database.rows.get_mut(&one).unwrap()[CODE] = codes.1;
                    database.rows.get_mut(&other).unwrap()[CODE] = codes.0;
                    database.own_codes.retain(|key| ![one, other].contains(key));
                    database.told.extend([one, other]);
                }
            }
            _ => unreachable!("an operation of others"),
        }
    }

    pub(super) fn drain(&mut self, records: usize, refuse: u8) {
        let (log, ..) = self.opened.as_ref().unwrap();
        log.flush().unwrap();
        let batch = log.reader(self.database.position).unwrap().next_batch(1 << 20).unwrap();
        for (index, (position, bytes)) in batch.iter().take(records).enumerate() {
            let record = LogRecord::decode(bytes).unwrap();
            let key = match record {
                LogRecord::Insert { row, .. }
                | LogRecord::Put { row, .. }
                | LogRecord::Update { row, .. } => number(row.key(&self.schema)),
                LogRecord::Delete { key, .. }
                | LogRecord::Increment { key, .. }
                | LogRecord::Undone { key, .. }
                | LogRecord::Committed { key, .. } => number(key),
            };
            let is_refused = refuse & (1 << (index % 8)) != 0;
            if is_intent(bytes) {
                let needs_row = matches!(record, LogRecord::Update { .. } | LogRecord::Increment { .. });
                let outcome = match needs_row && !self.database.rows.contains_key(&key) {
                    true => Outcome::Missing,
                    false if is_refused || !self.database.take(&self.schema, record) => {
                        Outcome::Refused(Arc::new(std::io::Error::other("refused")))
                    }
                    false => Outcome::Committed,
                };
                self.database.outcomes.insert(position, outcome);
            } else if is_refused || !self.database.take(&self.schema, record) {
                self.database.refused.push((key, position));
            }
            self.database.position = position;
        }
        self.settled();
    }

    /// Reports that memory knows the outcomes of everything that the database has decided.
    fn settled(&self) {
        if self.database.refused.is_empty() && self.database.outcomes.is_empty() {
            let tables = &self.opened.as_ref().unwrap().1;
            tables.settled(self.database.position);
            tables.drained(self.database.position);
        }
    }

    pub(super) fn undo(&mut self) {
        for (key, position) in std::mem::take(&mut self.database.refused) {
            self.table().undo(Value::Bigint(key).as_ref());
            doubt(&mut self.unsure, key, position);
            self.refused.insert(key);
            self.known.get_mut(&key).unwrap().own.retain(|(at, _)| *at != position);
        }
        self.settled();
    }

    /// Tells memory the outcomes of the intents that the database has decided.
    pub(super) fn tell(&mut self) {
        let outcomes = std::mem::take(&mut self.database.outcomes);
        let (_, tables, table) = self.opened.as_ref().unwrap();
        let position = self.database.position;
        let unread = tables.settle(|_| position, |at| outcomes[&at].clone());
        assert!(unread.is_empty());
        for (at, outcome) in &outcomes {
            let (key, own) = self.pending.remove(at).unwrap();
            let known = self.known.get_mut(&key).unwrap();
            match outcome {
                Outcome::Committed if known.at < *at => known.own.push((*at, own)),
                Outcome::Missing => {
                    table.undo(Value::Bigint(key).as_ref());
                    doubt(&mut self.unsure, key, *at);
                    self.refused.insert(key);
                }
                _ => {}
            }
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|one| {
            let Some(outcome) = one.at.and_then(|at| outcomes.get(&at)) else { return true };
            let task::Poll::Ready(answer) = one.poll() else { panic!("its outcome is told") };
            match (outcome, answer.map_err(|error| error.kind())) {
                (Outcome::Committed, Ok(()))
                | (Outcome::Missing, Err(HotKind::Missing))
                | (Outcome::Refused(_), Err(HotKind::Refused)) => false,
                (outcome, answer) => panic!("{outcome:?} was told as {answer:?}"),
            }
        });
        self.waiting = waiting;
        self.settled();
        self.go_on();
    }

    /// Tells memory that the outcomes of the intents that the database has decided are unknown.
    fn lose(&mut self) {
        let outcomes = std::mem::take(&mut self.database.outcomes);
        let (_, tables, table) = self.opened.as_ref().unwrap();
        let position = self.database.position;
        let again = tables.settle(|_| position, |_| Outcome::Unknown);
        table.want(again.iter().map(|again| again.key.clone()), false);
        self.again.extend(again);
        for (at, outcome) in &outcomes {
            let (key, own) = self.pending.remove(at).unwrap();
            doubt(&mut self.unsure, key, *at);
            if let Outcome::Committed = outcome {
                if let Own::Put(values) = &own {
                    self.undecided.insert(key, (values[CODE].clone(), *at));
                }
                if let Own::Set(CODE, code) = &own {
                    self.undecided.insert(key, (code.clone(), *at));
                }
                let known = self.known.get_mut(&key).unwrap();
                if known.at < *at {
                    known.own.push((*at, own));
                }
            }
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|one| {
            if !one.at.is_some_and(|at| outcomes.contains_key(&at)) {
                return true;
            }
            let task::Poll::Ready(answer) = one.poll() else { panic!("its outcome is told") };
            assert_eq!(answer.map_err(|error| error.kind()), Err(HotKind::UnknownOutcome));
            false
        });
        self.waiting = waiting;
        self.settled();
        self.go_on();
    }

    /// Reads the rows that memory dropped, as far as that is possible now.
    pub(super) fn read_again(&mut self) {
        let drained = self.database.position;
        self.again.retain(|again| {
            let mut read = std::pin::pin!(again.read());
            let mut context = task::Context::from_waker(Waker::noop());
            again.from > drained || !matches!(read.as_mut().poll(&mut context), task::Poll::Ready(Ok(())))
        });
    }

    /// Writes that wait for something else than the database try again.
    pub(super) fn go_on(&mut self) {
        let log = self.opened.as_ref().unwrap().0.clone();
        let (pending, known, is_unread) = (&mut self.pending, &self.known, self.is_unread);
        self.waiting.retain_mut(|one| {
            if one.at.is_some() {
                return true;
            }
            let before = log.end();
            match one.poll() {
                task::Poll::Pending if log.end() > before => {
                    one.at = Some(log.end());
                    pending.insert(log.end(), (one.key, one.own.clone()));
                    true
                }
                task::Poll::Pending => true,
                task::Poll::Ready(answer) => {
                    assert_eq!(log.end(), before);
                    match answer.map_err(|error| error.kind()) {
                        Err(HotKind::Missing) => assert!(is_unread || known[&one.key].fold().is_none()),
                        // An addition to NULL writes nothing.
                        Ok(()) => assert!(matches!(one.own, Own::Add(_))),
                        Err(_) => {}
                    }
                    false
                }
            }
        });
    }

    pub(super) fn strict(&mut self, op: Op) {
        let table = HotTable::Embedded(self.opened.as_ref().unwrap().2.clone()).strict();
        let set = |key: i64, column: usize, value: Value| {
            let changes = [(column, value.as_ref())];
            let answer = later(table.update(Value::Bigint(key).as_ref(), &changes, |_| ()));
            (key, Own::Set(column, value), answer)
        };
        let (key, own, answer) = match op {
            Op::Insert(key, code, length) => {
                let values = values(key, code, length);
                let answer = later(table.insert(Row::from_values(&self.schema, &values).as_ref()));
                (key, Own::Put(values), answer)
            }
            Op::Upsert(key, code, length) => {
                let values = values(key, code, length);
                let answer = later(table.upsert(Row::from_values(&self.schema, &values).as_ref()));
                (key, Own::Put(values), answer)
            }
            Op::SetCode(key, to) => set(key, CODE, code(to)),
            Op::SetBody(key, to) => set(key, BODY, body(to)),
            Op::SetClicks(key, to) => set(key, CLICKS, Value::Bigint(to)),
            Op::Increment(key, delta) => {
                let called = table.increment(Value::Bigint(key).as_ref(), CLICKS, delta, |_| ());
                (key, Own::Add(delta), later(called))
            }
            Op::Delete(key) => (key, Own::Delete, later(table.delete(Value::Bigint(key).as_ref(), |_| ()))),
            _ => unreachable!("an operation of this process"),
        };
        self.waiting.push(Waiting { key, own, at: None, answer });
        self.go_on();
    }

    pub(super) fn look(&mut self) {
        if self.seen.is_some() {
            return;
        }
        let (_, tables, _) = self.opened.as_ref().unwrap();
        let poll = tables.following().unwrap().begin(3);
        let told = self.database.told.len();
        let mut keys: BTreeSet<_> = self.database.told[self.database.read..].iter().copied().collect();
        self.database.read = told;
        keys.extend(poll.wanted.iter().map(|(_, key)| number(key.as_ref())));
        let images = keys.into_iter().map(|key| (key, self.database.rows.get(&key).cloned())).collect();
        self.seen = Some(Seen { poll, images, at: self.database.position, told });
    }

    pub(super) fn apply(&mut self) {
        let Some(Seen { poll, images, at, told }) = self.seen.take() else { return };
        let image = |(key, row): &(i64, Option<Values>)| Image {
            key: Value::Bigint(*key),
            row: row.as_ref().map(|values| Row::from_values(&self.schema, values)),
            unfit: None,
        };
        let all: Vec<_> = images.iter().map(image).collect();
        poll.apply(0, &all, at).unwrap();
        poll.end(true);
        let (_, tables, _) = self.opened.as_ref().unwrap();
        tables.following().unwrap().reached(Some(told.to_string()), images.len() as u64);
        for (key, row) in images {
            let known = self.known.get_mut(&key).unwrap();
            known.image = row;
            known.at = at;
            known.own.retain(|(position, _)| *position > at);
            self.unsure.retain(|unsure, refused| *unsure != key || *refused > at);
            if self.undecided.get(&key).is_some_and(|(_, from)| *from <= at) {
                self.undecided.remove(&key);
            }
            if let (None, Some((last, _))) = (&known.image, known.own.last()) {
                // Others deleted the row: memory has forgotten what the pending changes have set.
                doubt(&mut self.unsure, key, *last);
            }
        }
        self.read_again();
    }

    pub(super) fn get(&self, key: i64) {
        let show = |row: RowRef<'_>| row.to_values(&self.schema);
        match self.table().get(Value::Bigint(key).as_ref(), Counters::Shown, show) {
            Read::Found(values, _) => self.known[&key].check(values),
            Read::Missing(_) => assert_eq!(None, self.known[&key].fold(), "key {key}"),
            Read::Fetch(_) => self.table().want([Value::Bigint(key)], true),
        }
    }

    pub(super) fn run(&mut self, op: Op) {
        match op {
            Op::Drain(records, refuse) => self.drain(records, refuse),
            Op::Undo => self.undo(),
            Op::Strict(op) => self.strict(*op),
            Op::Settle => self.tell(),
            Op::Lose => self.lose(),
            Op::Look => self.look(),
            Op::Apply => self.apply(),
            Op::Get(key) => self.get(key),
            Op::Checkpoint(meanwhile) => self.checkpoint(meanwhile),
            Op::Restart(first, second) => {
                self.close();
                self.open(false, [first, second]);
            }
            Op::RestartAlone(first, second) => {
                self.close();
                self.open(true, [first, second]);
            }
            op @ (Op::OthersPut(..)
            | Op::OthersSet(..)
            | Op::OthersAdd(..)
            | Op::OthersDelete(..)
            | Op::OthersSwap(..)) => self.others(op),
            op => self.own(op),
        }
    }
}

/// Memory may not know the row's unique value before an image of this position.
fn doubt(unsure: &mut BTreeMap<i64, Position>, key: i64, position: Position) {
    let last = unsure.entry(key).or_insert(position);
    *last = position.max(*last);
}
