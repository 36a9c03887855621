//! Random writes, refusals, checkpoints, and databases that are older than the checkpoint or than memory, put
//! in place at restarts and beside the running server: once the log is drained again, memory equals the
//! database, even if it refuses other changes than before.

use crate::common::*;
use forebay_log::{Durability, Position};
use forebay_table::{
    Called, Counters, HotResult, HotTable, LogRecord, Outcome, Read, RereadRow, SourceError, Table,
    TableSpec, Tables, is_intent,
};
use forebay_value::{KeyKind, Row, Schema, Value, ValueRef};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

/// The database refuses each row with the body of this number; at first the first.
const REFUSED: [&str; 2] = ["refused", "1"];

#[derive(Debug, Clone)]
enum Op {
    Insert {
        key: i64,
        body: u8,
        code: u8,
        is_strict: bool,
    },
    Update {
        key: i64,
        body: u8,
        is_strict: bool,
    },
    Code {
        key: i64,
        code: u8,
        is_strict: bool,
    },
    Add {
        key: i64,
        is_strict: bool,
    },
    Delete {
        key: i64,
        is_strict: bool,
    },
    /// A client reads the row: it may be fetched from the database.
    Read {
        key: i64,
    },
    /// `reads`: clients read all rows before memory hears of the batch.
    Drain {
        tells: bool,
        reads: bool,
    },
    Checkpoint,
    SaveSettled,
    /// The database refuses something else from now on.
    Changes {
        refused: usize,
    },
    /// An earlier database is put in place beside the running server.
    GoesBack {
        back: usize,
    },
    /// `forgets`: the log does not know what it released, because the process was killed.
    Restart {
        back: usize,
        is_away: bool,
        forgets: bool,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0i64..4;
    let op = prop_oneof![
        6 => (key(), 0u8..5, 0u8..5, any::<bool>())
            .prop_map(|(key, body, code, is_strict)| Op::Insert { key, body, code, is_strict }),
        4 => (key(), 0u8..5, any::<bool>())
            .prop_map(|(key, body, is_strict)| Op::Update { key, body, is_strict }),
        2 => (key(), 0u8..5, any::<bool>())
            .prop_map(|(key, code, is_strict)| Op::Code { key, code, is_strict }),
        2 => (key(), any::<bool>()).prop_map(|(key, is_strict)| Op::Add { key, is_strict }),
        3 => (key(), any::<bool>()).prop_map(|(key, is_strict)| Op::Delete { key, is_strict }),
        4 => key().prop_map(|key| Op::Read { key }),
        5 => (prop::bool::weighted(0.9), prop::bool::weighted(0.3))
            .prop_map(|(tells, reads)| Op::Drain { tells, reads }),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::SaveSettled),
        1 => (0..REFUSED.len()).prop_map(|refused| Op::Changes { refused }),
        1 => (1usize..6).prop_map(|back| Op::GoesBack { back }),
        1 => (0usize..6, any::<bool>(), any::<bool>())
            .prop_map(|(back, is_away, forgets)| Op::Restart { back, is_away, forgets }),
    ];
    prop::collection::vec(op, 1..80)
}

fn body(number: u8) -> Value {
    match number {
        0 => text(REFUSED[0]),
        4 => text(&"long ".repeat(200)),
        number => text(&number.to_string()),
    }
}

/// A unique value.
fn code(number: u8) -> Value {
    match number {
        0 => Value::Null,
        number => text(&format!("code {number}")),
    }
}

type Rows = BTreeMap<String, Row>;

struct World<'a> {
    dir: &'a Path,
    store: Arc<Store>,
    /// The database after each drain, the latest last.
    history: Vec<(Position, Rows)>,
    opened: Option<Opened>,
    /// Intents up to here were decided before the last start.
    decided: Position,
    undone: Vec<RereadRow>,
    refused: &'static str,
    spec: TableSpec,
    limit_bytes: u64,
}

/// Begins a strict write, or makes one at once.
fn write<T: 'static>(write: HotResult<(), T>) {
    if let Ok(Called::Later(mut outcome)) = write {
        block_on(std::future::poll_fn(|context| {
            let _ = outcome.as_mut().poll(context);
            Poll::Ready(())
        }));
    }
}

/// A client reads the row, which may have to wait for the drain.
fn read(table: &Table, key: i64) {
    if let Read::Fetch(key) = table.get(ValueRef::Bigint(key), Counters::Shown, |_| ()) {
        let _fetched = block_on(table.fetch(key));
    }
}

/// What a database does with a record.
enum Verdict {
    Applied,
    Missing,
    /// Of the row with this key.
    Refused(Value),
}

fn apply(rows: &mut Rows, schema: &Schema, record: &LogRecord<'_>, refused: &str) -> Verdict {
    let is_refused = |rows: &Rows, row: &Row| {
        let code = row.as_ref().get(schema, CODE);
        let has_code = |other: &Row| other.as_ref().get(schema, CODE) == code;
        let is_other = |other: &Row| other.as_ref().get(schema, ID) != row.as_ref().get(schema, ID);
        row.as_ref().get(schema, BODY) == ValueRef::Text(refused)
            || code != ValueRef::Null && rows.values().any(|other| is_other(other) && has_code(other))
    };
    match *record {
        LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } => {
            let (key, row) = (row.key(schema), Row(row.0.into()));
            let is_new = matches!(record, LogRecord::Insert { .. });
            if is_refused(rows, &row) || is_new && rows.contains_key(&key_text(key)) {
                return Verdict::Refused(key.to_owned());
            }
            rows.insert(key_text(key), row);
        }
        LogRecord::Update { columns, row, .. } => {
            let key = row.key(schema);
            let Some(stored) = rows.get(&key_text(key)) else { return Verdict::Missing };
            let mut values = stored.as_ref().to_values(schema);
            for (column, value) in columns.of(row, schema) {
                values[column] = value.to_owned();
            }
            let changed = Row::from_values(schema, &values);
            if is_refused(rows, &changed) {
                return Verdict::Refused(key.to_owned());
            }
            rows.insert(key_text(key), changed);
        }
        LogRecord::Increment { key, column, delta, .. } => {
            let Some(stored) = rows.get_mut(&key_text(key)) else { return Verdict::Missing };
            let mut values = stored.as_ref().to_values(schema);
            let Value::Bigint(number) = &mut values[column] else { panic!("an increment of NULL") };
            *number += delta;
            *stored = Row::from_values(schema, &values);
        }
        LogRecord::Delete { key, .. } => {
            if rows.remove(&key_text(key)).is_none() {
                return Verdict::Missing;
            }
        }
        LogRecord::Undone { .. } | LogRecord::Committed { .. } => {}
    }
    Verdict::Applied
}

impl World<'_> {
    fn now(&self) -> &Opened {
        self.opened.as_ref().unwrap()
    }

    fn run(&mut self, op: &Op) {
        let table = &self.now().table;
        let hot = |is_strict: bool| match HotTable::Embedded(table.clone()) {
            hot if is_strict => hot.strict(),
            hot => hot,
        };
        match *op {
            Op::Insert { key, body: number, code: unique, is_strict } => {
                let values = [Value::Bigint(key), code(unique), text("n"), Value::Bigint(0), body(number)];
                write(hot(is_strict).insert(Row::from_values(table.schema(), &values).as_ref()));
            }
            Op::Update { key, body: number, is_strict } => {
                write(hot(is_strict).update(ValueRef::Bigint(key), &[(BODY, body(number).as_ref())], |_| ()));
            }
            Op::Code { key, code: unique, is_strict } => {
                let code = code(unique);
                write(hot(is_strict).update(ValueRef::Bigint(key), &[(CODE, code.as_ref())], |_| ()));
            }
            Op::Add { key, is_strict } => {
                write(hot(is_strict).increment(ValueRef::Bigint(key), CLICKS, 1, |_| ()));
            }
            Op::Delete { key, is_strict } => {
                write(hot(is_strict).delete(ValueRef::Bigint(key), |_| ()));
            }
            Op::Read { key } => read(table, key),
            Op::Drain { tells, reads } => self.drain(tells, reads),
            Op::Checkpoint => drop(self.now().tables.save_checkpoint(|| true).unwrap()),
            Op::SaveSettled => self.now().tables.save_settled().unwrap(),
            Op::Changes { refused } => self.refused = REFUSED[refused],
            Op::GoesBack { back } => {
                self.put_back(back);
                self.look();
            }
            Op::Restart { back, is_away, forgets } => self.restart(back, is_away, forgets),
        }
    }

    /// A batch of the drain. Without `tells` the process ends before memory hears of it: a restart follows.
    fn drain(&mut self, tells: bool, reads: bool) {
        let opened = self.opened.as_ref().unwrap();
        opened.log.flush().unwrap();
        let from = *self.store.position.lock().unwrap();
        let mut reached = from;
        let (mut refused, mut missing, mut refused_intents) = (Vec::new(), HashSet::new(), HashSet::new());
        let mut reader = opened.log.reader(from).unwrap();
        let catalogue = opened.tables.catalogue();
        {
            let mut rows = self.store.rows.lock().unwrap();
            loop {
                let batch = reader.next_batch(1 << 20).unwrap();
                if batch.is_empty() {
                    break;
                }
                for (position, bytes) in batch.iter() {
                    let record = LogRecord::decode(bytes).unwrap();
                    let schema = catalogue.schema(record.table()).unwrap();
                    record.check(schema).unwrap();
                    let awaits = is_intent(bytes) && position > self.decided && opened.table.awaits(position);
                    match apply(&mut rows, schema, &record, self.refused) {
                        Verdict::Applied => {}
                        Verdict::Refused(_) if awaits => drop(refused_intents.insert(position)),
                        Verdict::Refused(key) => refused.push(key),
                        Verdict::Missing if awaits => drop(missing.insert(position)),
                        Verdict::Missing => {}
                    }
                }
                reached = batch.end();
            }
            self.history.push((reached, rows.clone()));
        }
        *self.store.position.lock().unwrap() = reached;
        if !tells {
            return self.restart(0, false, true);
        }
        if reads {
            (0..4).for_each(|key| read(&opened.table, key));
        }
        let outcome = |position: Position| match position {
            position if refused_intents.contains(&position) => {
                Outcome::Refused(Arc::new(io::Error::other("refused")))
            }
            position if missing.contains(&position) => Outcome::Missing,
            _ => Outcome::Committed,
        };
        self.undone.extend(opened.tables.settle(|_| reached, outcome));
        for key in refused {
            let from = opened.table.undo(key.as_ref());
            self.undone.push(RereadRow::new(from, opened.table.clone(), key));
        }
        opened.tables.settled(reached);
        opened.tables.drained(reached);
        self.read_undone(reached);
    }

    fn read_undone(&mut self, reached: Position) {
        for row in std::mem::take(&mut self.undone) {
            if row.from > reached || block_on(row.read()).is_err() {
                self.undone.push(row);
            }
        }
    }

    /// Ends the process, puts an earlier database in place, and starts; `is_away`: the start does without the
    /// database if it can.
    fn restart(&mut self, back: usize, is_away: bool, forgets: bool) {
        let before = *self.store.position.lock().unwrap();
        self.undone.clear();
        close(self.opened.take().unwrap());
        let (position, rows) = self.put_back(back);
        let log = open_log(&self.dir.join("log"), Durability::Async);
        let spec = self.spec.clone();
        let tables =
            Tables::open(log.clone(), self.dir, self.limit_bytes, vec![spec], self.store.clone()).unwrap();
        let table = tables.all()[0].clone();
        let is_away = is_away && tables.checkpoint_fits();
        if !is_away {
            tables.forget_beyond(|_| position).unwrap();
        }
        tables.load_checkpoint();
        if is_away {
            tables.replay(tables.settled_at()).unwrap();
            tables.drained(tables.settled_at());
        } else {
            if !table.is_from_checkpoint() {
                rows.values().for_each(|row| table.load(row.as_ref()));
            }
            let unsettled = tables.unsettled_rows(|_| position).unwrap();
            for (table, key) in &unsettled {
                let row = rows.get(&key_text(key.as_ref()));
                tables.restore(table, key.as_ref(), row, position);
            }
            tables.replay(position).unwrap();
            tables.drained(position);
            tables.settled(position);
        }
        table.set_loaded();
        // The first look of the drain.
        self.undone.extend(tables.settle(|_| position, |_| Outcome::Unknown));
        let before = if forgets { position } else { before };
        self.decided = before.max(tables.decided_at());
        self.opened = Some(Opened { log, tables, table });
        self.look();
        let tables = &self.now().tables;
        tables.undo_unsettled(|_| position).unwrap();
        let undone = tables.take_rereads();
        tables.drained(position);
        self.undone.extend(undone);
    }

    /// Puts an earlier database in place.
    fn put_back(&mut self, back: usize) -> (Position, Rows) {
        let stays = self.history.len().saturating_sub(back).max(1);
        self.history.truncate(stays);
        let (position, rows) = self.history.last().unwrap().clone();
        *self.store.rows.lock().unwrap() = rows.clone();
        *self.store.position.lock().unwrap() = position;
        (position, rows)
    }

    /// What the drain does when it has connected to the database.
    fn look(&mut self) {
        let position = *self.store.position.lock().unwrap();
        let tables = &self.opened.as_ref().unwrap().tables;
        tables.went_back(|_| position, position).unwrap();
        self.undone.extend(tables.take_rereads());
    }

    fn check(&mut self) {
        self.drain(true, false);
        self.drain(true, false);
        let opened = self.opened.as_ref().unwrap();
        let expected: BTreeMap<_, _> = self.store.rows.lock().unwrap().clone();
        let schema = opened.table.schema().clone();
        let mut is_whole = true;
        for key in 0..4 {
            let key = Value::Bigint(key);
            let expected = expected.get(&key_text(key.as_ref())).map(|row| row.as_ref().to_values(&schema));
            match shown(&opened.table, key.as_ref()) {
                Ok(shown) => assert_eq!(shown, expected, "{key:?}"),
                Err(error) => {
                    assert!(error.message.contains("memory limit"), "{key:?}: {error:?}");
                    is_whole = false;
                }
            }
        }
        assert!(!is_whole || opened.table.count().0 == expected.len() as u64);
    }
}

/// The error: there is no memory to show it.
fn shown(table: &Table, key: ValueRef<'_>) -> Result<Option<Vec<Value>>, SourceError> {
    loop {
        match table.get(key, Counters::Shown, |row| row.to_values(table.schema())) {
            Read::Found(row, _) => return Ok(Some(row)),
            Read::Missing(_) => return Ok(None),
            Read::Fetch(key) => drop(block_on(table.fetch(key))?),
        }
    }
}

/// `counts`: an increment competes with other intents of its row, because the column is indexed.
fn play(ops: &[Op], counts: bool, limit_bytes: u64) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let mut spec = spec(KeyKind::Bigint);
    spec.schema.columns[CLICKS].indexed = counts;
    let opened = open(dir.path(), spec.clone(), limit_bytes, &store);
    let mut world = World {
        dir: dir.path(),
        store,
        history: vec![(Position(0), Rows::new())],
        opened: Some(opened),
        decided: Position(0),
        undone: Vec::new(),
        refused: REFUSED[0],
        spec,
        limit_bytes,
    };
    for op in ops {
        world.run(op);
    }
    world.check();
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("FOREBAY_WENT_BACK_CASES");
    ProptestConfig::with_cases(cases.map_or(160, |cases| cases.parse().expect("a number of cases")))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn memory_equals_the_database_once_the_log_is_drained_again(
        ops in ops(),
        counts in any::<bool>(),
        limit_bytes in prop_oneof![2 => 1_000u64..6_000, 1 => Just(1 << 30)],
    ) {
        play(&ops, counts, limit_bytes);
    }
}

/// A row that was loaded from the database does not know when it was changed last.
#[test]
fn a_row_whose_body_is_not_in_memory_is_not_read_from_an_older_database() {
    let insert = |key| Op::Insert { key, body: 4, code: 0, is_strict: false };
    let restart = |back| Op::Restart { back, is_away: false, forgets: true };
    let mut ops = vec![insert(0), Op::Drain { tells: true, reads: false }, insert(1), insert(2), insert(3)];
    ops.extend([Op::Drain { tells: true, reads: false }, restart(0), Op::Checkpoint, restart(1)]);
    ops.extend((0..4).map(|key| Op::Read { key }));
    for limit_bytes in (1_000..6_000).step_by(250) {
        play(&ops, false, limit_bytes);
    }
}
