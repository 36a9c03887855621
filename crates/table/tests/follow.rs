//! A followed table against a model: own writes, others' writes, polls that are applied late, refusals,
//! evictions, checkpoints and restarts, in random order; some writes wait for the database. A read in between
//! must return the last image of a row with this process's later operations, without intents whose outcome is
//! not reported; in the end memory must equal the database.

#[path = "follow/checks.rs"]
mod checks;
mod common;
#[path = "follow/database.rs"]
mod database;
#[path = "follow/restarts.rs"]
mod restarts;
#[path = "follow/world.rs"]
mod world;

use common::*;
use database::Database;
use forebay_log::{Log, Position};
use forebay_table::{
    BoxFuture, Called, Counters, HotError, HotKind, HotResult, HotTable, Image, LogRecord, Others, Outcome,
    Poll, Read, RereadRow, Table, TableSpec, Tables, WriteError, is_intent,
};
use forebay_value::{KeyKind, Row, RowRef, Schema, Value, ValueRef};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::task::{self, Waker};

const KEYS: i64 = 4;

#[derive(Debug, Clone)]
enum Op {
    Insert(i64, Option<u8>, u16),
    Upsert(i64, Option<u8>, u16),
    SetCode(i64, Option<u8>),
    SetBody(i64, u16),
    SetClicks(i64, i64),
    Increment(i64, i64),
    Delete(i64),
    /// An operation of this process that is answered when the database has committed it.
    Strict(Box<Op>),
    /// Memory is told the outcomes of these operations.
    Settle,
    /// Memory is told that the outcomes are unknown.
    Lose,
    /// Others insert a row, or replace it.
    OthersPut(i64, Option<u8>, u16),
    OthersSet(i64, u16),
    OthersAdd(i64, i64),
    OthersDelete(i64),
    /// Others exchange the unique values of two rows, in one transaction.
    OthersSwap(i64, i64),
    /// The database takes this many records of the log, and refuses those whose bit is set.
    Drain(usize, u8),
    /// Memory is told which changes were refused.
    Undo,
    /// A poll reads the database.
    Look,
    /// The images that the poll read are applied to memory.
    Apply,
    Get(i64),
    /// A checkpoint is taken, and these operations happen while it is written.
    Checkpoint(Vec<Op>),
    /// A restart. The drain reads the database after the first list of writes, and the first poll reads it
    /// after the second.
    Restart(Vec<Op>, Vec<Op>),
    /// A restart while the database is unreachable: it is reachable again after the first list of writes.
    RestartAlone(Vec<Op>, Vec<Op>),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0..KEYS;
    let code = || proptest::option::weighted(0.7, 0u8..5);
    let length = || prop_oneof![0u16..40, 300u16..700];
    let own = prop_oneof![
        4 => (key(), code(), length()).prop_map(|(k, c, l)| Op::Insert(k, c, l)),
        3 => (key(), code(), length()).prop_map(|(k, c, l)| Op::Upsert(k, c, l)),
        3 => (key(), code()).prop_map(|(k, c)| Op::SetCode(k, c)),
        3 => (key(), length()).prop_map(|(k, l)| Op::SetBody(k, l)),
        1 => (key(), -5i64..50).prop_map(|(k, n)| Op::SetClicks(k, n)),
        6 => (key(), prop_oneof![9 => -5i64..50, 1 => Just(i64::MAX)]).prop_map(|(k, n)| Op::Increment(k, n)),
        3 => key().prop_map(Op::Delete),
    ];
    let drain = || {
        (1usize..4, prop_oneof![9 => Just(0u8), 1 => any::<u8>()]).prop_map(|(n, bits)| Op::Drain(n, bits))
    };
    let op = || {
        prop_oneof![
            23 => own.clone(),
            12 => own.clone().prop_map(|op| Op::Strict(Box::new(op))),
            6 => Just(Op::Settle),
            1 => Just(Op::Lose),
            4 => (key(), code(), length()).prop_map(|(k, c, l)| Op::OthersPut(k, c, l)),
            3 => (key(), length()).prop_map(|(k, l)| Op::OthersSet(k, l)),
            3 => (key(), -5i64..50).prop_map(|(k, n)| Op::OthersAdd(k, n)),
            3 => key().prop_map(Op::OthersDelete),
            2 => (key(), key()).prop_map(|(a, b)| Op::OthersSwap(a, b)),
            6 => drain(),
            4 => Just(Op::Undo),
            8 => Just(Op::Look),
            8 => Just(Op::Apply),
            8 => key().prop_map(Op::Get),
        ]
    };
    let written = prop_oneof![3 => own.clone(), 1 => own.clone().prop_map(|op| Op::Strict(Box::new(op)))];
    let drained = prop_oneof![4 => written.clone(), 1 => drain(), 1 => Just(Op::Undo), 1 => Just(Op::Settle)];
    let unread = || {
        (proptest::collection::vec(written.clone(), 0..6), proptest::collection::vec(drained.clone(), 0..6))
    };
    let any = prop_oneof![
        95 => op(),
        2 => proptest::collection::vec(op(), 0..40).prop_map(Op::Checkpoint),
        1 => unread().prop_map(|(first, second)| Op::Restart(first, second)),
        1 => unread().prop_map(|(first, second)| Op::RestartAlone(first, second)),
    ];
    proptest::collection::vec(any, 1..200)
}

/// A restart with nothing written before the first poll.
fn restart() -> Op {
    Op::Restart(Vec::new(), Vec::new())
}

type Values = Vec<Value>;

/// An operation of this process on a row.
#[derive(Debug, Clone)]
enum Own {
    Put(Values),
    Delete,
    Set(usize, Value),
    Add(i64),
}

impl Own {
    /// Whether the operation sets this unique value.
    fn sets_code(&self, code: &Value) -> bool {
        let set = match self {
            Own::Put(values) => &values[CODE],
            Own::Set(CODE, set) => set,
            Own::Set(..) | Own::Add(_) | Own::Delete => return false,
        };
        !code.is_null() && set == code
    }
}

/// What is known of a key: the last image, and this process's operations after it.
#[derive(Debug, Clone, Default)]
struct Known {
    image: Option<Values>,
    /// The position of the image.
    at: Position,
    own: Vec<(Position, Own)>,
}

impl Known {
    fn fold(&self) -> Option<Values> {
        self.fold_all().0
    }

    /// The row, and whether every sum on the way to it fits. Memory clamps a sum that does not fit to the
    /// range, and adds to the clamped one, until the next image.
    fn fold_all(&self) -> (Option<Values>, bool) {
        let mut row = self.image.clone();
        let clicks = |row: &Option<Values>| match row.as_ref().map(|row| &row[CLICKS]) {
            Some(Value::Bigint(number)) => i128::from(*number),
            _ => 0,
        };
        let (mut sum, mut fits) = (clicks(&row), true);
        for (_, own) in &self.own {
            match own {
                Own::Put(values) => row = Some(values.clone()),
                Own::Delete => row = None,
                Own::Set(column, value) => {
                    if let Some(row) = &mut row {
                        row[*column] = value.clone();
                    }
                }
                Own::Add(delta) => sum += i128::from(*delta),
            }
            if matches!(own, Own::Put(_) | Own::Set(CLICKS, _)) {
                (sum, fits) = (clicks(&row), true);
            }
            fits &= i64::try_from(sum).is_ok();
        }
        if let Some(Value::Bigint(number)) = row.as_mut().map(|row| &mut row[CLICKS]) {
            *number = sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        }
        (row, fits)
    }

    /// Checks that memory shows the row.
    fn check(&self, shown: Values) {
        let (mut row, fits) = self.fold_all();
        if let (Some(row), false) = (&mut row, fits) {
            row[CLICKS] = shown[CLICKS].clone();
        }
        assert_eq!(Some(shown), row);
    }
}

fn number(key: ValueRef<'_>) -> i64 {
    let ValueRef::Bigint(key) = key else { panic!("keys are numbers") };
    key
}

fn code(code: Option<u8>) -> Value {
    code.map_or(Value::Null, |code| text(&format!("code {code}")))
}

fn body(length: u16) -> Value {
    text(&"b".repeat(length.into()))
}

fn values(key: i64, code_number: Option<u8>, length: u16) -> Values {
    let clicks = if length.is_multiple_of(7) { Value::Null } else { Value::Bigint(length.into()) };
    vec![Value::Bigint(key), code(code_number), text(&format!("name {}", length % 3)), clicks, body(length)]
}

/// What a poll read.
struct Seen {
    poll: Poll,
    images: Vec<(i64, Option<Values>)>,
    at: Position,
    /// How many changes had been reported then.
    told: usize,
}

struct World<'a> {
    dir: &'a Path,
    schema: Schema,
    limit_bytes: u64,
    database: Database,
    opened: Option<(Log, Tables, Arc<Table>)>,
    seen: Option<Seen>,
    known: BTreeMap<i64, Known>,
    /// No poll has been applied since the start, so memory lacks others' changes.
    is_unread: bool,
    /// Clients that wait for the database.
    waiting: Vec<Waiting>,
    /// Intents without an outcome.
    pending: BTreeMap<Position, (i64, Own)>,
    /// Rows that memory dropped, and of which no image has been applied since.
    again: Vec<RereadRow>,
    /// The database's state of intents of unknown outcome, until an image contains it.
    undecided: BTreeMap<i64, (Value, Position)>,
    /// Rows of which memory may not know the unique value before an image of this position is applied: the
    /// database refused a change of the row there, or others have deleted it.
    unsure: BTreeMap<i64, Position>,
    /// Rows of which the database refused a change at any time: memory may assume a unique value that they do
    /// not have.
    refused: BTreeSet<i64>,
}

/// A write that is not answered yet.
struct Waiting {
    key: i64,
    own: Own,
    /// Its position in the log, once it is there.
    at: Option<Position>,
    answer: BoxFuture<'static, Result<(), HotError>>,
}

/// The future of a strict call.
fn later<T: Send + 'static>(called: HotResult<(), T>) -> BoxFuture<'static, Result<(), HotError>> {
    let Ok(Called::Later(written)) = called else { panic!("a strict write is answered later") };
    Box::pin(async move { written.await.map(drop) })
}

impl Waiting {
    fn poll(&mut self) -> task::Poll<Result<(), HotError>> {
        self.answer.as_mut().poll(&mut task::Context::from_waker(Waker::noop()))
    }
}

fn check(limit_bytes: u64, alters: bool, ops: Vec<Op>) {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World {
        dir: dir.path(),
        schema: schema(KeyKind::Bigint),
        limit_bytes,
        database: Database { alters, ..Database::default() },
        opened: None,
        seen: None,
        known: (0..=KEYS).map(|key| (key, Known::default())).collect(),
        is_unread: false,
        waiting: Vec::new(),
        pending: BTreeMap::new(),
        again: Vec::new(),
        undecided: BTreeMap::new(),
        unsure: BTreeMap::new(),
        refused: BTreeSet::new(),
    };
    world.open(false, Default::default());
    for op in ops {
        world.run(op);
    }
    world.check();
    world.close();
    world.open(false, Default::default());
    world.check();
    world.look();
    world.apply();
    assert_eq!(
        world.table().used_bytes(),
        world.opened.as_ref().unwrap().1.used_bytes(),
        "there is one table"
    );
    world.table().clear().unwrap();
    assert_eq!(world.opened.as_ref().unwrap().1.used_bytes(), 0, "what was counted was given back");
    world.close();
}

/// Cases of each test: `make model` runs far more.
fn cases() -> u32 {
    std::env::var("FOREBAY_MODEL_CASES").map_or(128, |cases| cases.parse().expect("a number of cases"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, max_shrink_time: 60_000, ..ProptestConfig::default() })]

    #[test]
    fn memory_becomes_the_database(ops in ops()) {
        check(1 << 30, false, ops);
    }

    #[test]
    fn memory_becomes_a_database_that_alters_rows(ops in ops()) {
        check(1 << 30, true, ops);
    }

    #[test]
    fn memory_becomes_the_database_in_little_memory(ops in ops(), limit in 6_000u64..16_000) {
        check(limit, false, ops);
    }
}

/// Others gave a row a unique value, and a write of unknown outcome has taken it away: another row may get it
/// before memory was told of either.
#[test]
fn a_value_that_an_unheard_write_has_freed_may_be_given() {
    let strict = |op| Op::Strict(Box::new(op));
    let ops = vec![
        Op::Checkpoint(vec![Op::Insert(0, None, 0), strict(Op::Upsert(3, None, 0))]),
        Op::Settle,
        Op::Drain(2, 0),
        Op::OthersPut(0, Some(3), 0),
        strict(Op::SetCode(0, None)),
        Op::Settle,
        Op::RestartAlone(Vec::new(), vec![Op::Drain(1, 0), Op::SetCode(3, Some(3))]),
    ];
    check(1 << 30, false, ops);
}

/// Others exchange the unique values of two rows repeatedly; an insert of one of the values is refused at
/// every moment.
#[test]
fn a_swap_leaves_no_unique_value_free() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path(), forebay_log::Durability::Async);
    let spec = TableSpec { others: Others::Followed, ..spec(KeyKind::Bigint) };
    let tables = Tables::open(log, dir.path(), 1 << 30, vec![spec], Arc::<Store>::default()).unwrap();
    let (table, following) = (tables.all()[0].clone(), tables.following().unwrap());
    table.set_loaded();
    let row = |key, of| Row::from_values(table.schema(), &values(key, Some(of), 1));
    let images = |is_swapped: bool| -> Vec<Image> {
        let rows = [(1, u8::from(is_swapped)), (2, u8::from(!is_swapped))];
        let image = |(key, of)| Image { key: Value::Bigint(key), row: Some(row(key, of)), unfit: None };
        rows.into_iter().map(image).collect()
    };
    let apply = |is_swapped: bool| {
        let poll = following.begin(1);
        poll.apply(0, &images(is_swapped), Position(0)).unwrap();
        poll.end(true);
    };
    apply(false);
    std::thread::scope(|scope| {
        let swaps = scope.spawn(|| (0..20_000).for_each(|round| apply(round % 2 == 0)));
        while !swaps.is_finished() {
            for of in 0..2 {
                let inserted = table.insert(row(3, of).as_ref());
                assert!(matches!(inserted, Err(WriteError::Conflict { rule: CODE, .. })), "{inserted:?}");
            }
        }
    });
}

/// A write that waited for the database was committed; the checkpoint is older, and the row was changed again
/// before the process died. After the start only the first image shows its value.
#[test]
fn a_committed_unique_value_is_taken_before_the_row_is_known() {
    let strict = |op| Op::Strict(Box::new(op));
    let others = [Op::Insert(2, None, 0), Op::SetCode(2, Some(3))];
    let update = [Op::Insert(0, None, 0), strict(Op::SetCode(0, Some(3))), Op::Drain(2, 0)];
    let insert = [strict(Op::Insert(0, Some(3), 0)), Op::Drain(1, 0)];
    for written in [update.to_vec(), insert.to_vec()] {
        let mut ops = vec![Op::Checkpoint(written), restart(), Op::SetBody(0, 0), restart()];
        ops.extend(others.clone());
        check(1 << 30, false, ops);
    }
}

/// The same for a value that was set by a change of a row that no checkpoint contained.
#[test]
fn a_unique_value_set_in_a_row_that_memory_lacks_is_taken() {
    let strict = Op::Strict(Box::new(Op::Insert(0, None, 0)));
    let ops = [Op::Checkpoint(vec![strict, Op::Drain(1, 0)]), restart(), Op::SetCode(0, Some(3))];
    let others = [restart(), Op::Insert(2, None, 0), Op::SetCode(2, Some(3))];
    check(1 << 30, false, ops.into_iter().chain(others).collect());
}

/// A write that waited was refused, and the row had been dropped before, for another reason: the row has its
/// old unique value, whatever the write would have set.
#[test]
fn a_refused_unique_value_leaves_the_old_one_taken() {
    let strict = |op| Op::Strict(Box::new(op));
    let first = vec![strict(Op::Insert(1, Some(4), 3)), Op::Insert(2, Some(2), 23), Op::Drain(1, 0)];
    let again = [Op::Delete(2), Op::Insert(2, Some(0), 0), Op::Insert(3, None, 38), Op::Drain(3, 0)];
    let writes = vec![strict(Op::SetCode(2, Some(2))), strict(Op::Increment(3, 17))];
    let outcomes = [Op::Drain(1, 0), Op::Drain(2, 3), Op::Settle];
    let mut ops = vec![Op::Checkpoint(first)];
    ops.extend(again);
    ops.extend([Op::Checkpoint(writes), Op::RestartAlone(Vec::new(), Vec::new())]);
    ops.extend(outcomes);
    ops.push(Op::RestartAlone(vec![Op::Upsert(3, Some(0), 380)], Vec::new()));
    check(1 << 30, false, ops);
}

/// The outcome of a write that waited is unknown; another row is written with its unique value before the row
/// has been read, in the same run and after a restart.
#[test]
fn no_other_row_gets_the_unique_value_of_an_unheard_write() {
    let strict = || [Op::Strict(Box::new(Op::Insert(0, Some(3), 0))), Op::Drain(1, 0)];
    let taken = || vec![Op::Insert(1, Some(3), 0)];
    let begun = || std::iter::once(Op::Checkpoint(Vec::new())).chain(strict());
    for end in [Vec::new(), vec![Op::Settle], vec![Op::Lose], vec![Op::Settle, Op::SetCode(0, None)]] {
        let ops = begun().chain(end).chain([Op::Restart(taken(), taken())]);
        check(1 << 30, false, ops.collect());
    }
    let lost = [Op::Lose, Op::Insert(1, Some(3), 0), Op::Look, Op::Apply, Op::Insert(1, Some(3), 0)];
    check(1 << 30, false, strict().into_iter().chain(lost).collect());
    let ends: [Vec<Op>; 3] = [
        vec![Op::Look, Op::Apply, Op::Checkpoint(Vec::new()), Op::Settle],
        vec![Op::Lose, Op::Checkpoint(Vec::new())],
        vec![Op::Checkpoint(vec![Op::Lose])],
    ];
    for end in ends {
        for restart in [Op::Restart(taken(), taken()), Op::RestartAlone(taken(), taken())] {
            let ops = strict().into_iter().chain(end.clone());
            check(1 << 30, false, ops.chain([restart]).collect());
        }
    }
}

/// Two writes of a row waited for the database, which refused the first one. A restart learns only the
/// outcome of the second; the next write waits for that of the first.
#[test]
fn a_write_waits_for_an_earlier_one_whose_outcome_is_not_told() {
    let strict = |op| Op::Strict(Box::new(op));
    // The refusal is not reported, so the outcomes behind it are not known at the start.
    let mut ops = vec![Op::Checkpoint(Vec::new()), Op::Insert(2, None, 0), Op::Drain(1, 1)];
    ops.extend([strict(Op::Insert(0, None, 0)), Op::Drain(1, 1), Op::Settle]);
    ops.extend([strict(Op::Insert(0, Some(3), 0)), Op::Drain(1, 0), Op::Settle]);
    let increment = || strict(Op::Increment(0, 1));
    ops.push(Op::RestartAlone(vec![increment()], vec![increment()]));
    check(1 << 30, false, ops);
}

/// A write sets the unique value that its row has; others take the value from the row before the database
/// commits the write.
#[test]
fn a_write_keeps_the_unique_value_that_it_sets_again() {
    let first = [Op::Insert(0, Some(2), 0), Op::Drain(1, 0), Op::Look, Op::Apply];
    let set = Op::Strict(Box::new(Op::SetCode(0, Some(2))));
    let others = [Op::OthersPut(0, None, 0), Op::Look, Op::Apply, Op::Upsert(1, Some(2), 0)];
    let ops = first.into_iter().chain([set]).chain(others).chain([Op::Drain(1, 0), Op::Settle]);
    check(1 << 30, false, ops.chain([Op::Upsert(1, Some(2), 0)]).collect());
}

/// The sum of the pending additions does not fit into the column; added to the image it does.
#[test]
fn what_waits_is_added_up_beyond_the_range_of_the_column() {
    let strict = Op::Strict(Box::new(Op::Increment(0, 2)));
    let ops = [Op::OthersPut(0, None, 1), Op::Look, Op::Apply, Op::OthersAdd(0, -5), Op::Look, Op::Apply];
    let adds = [strict, Op::Drain(1, 0), Op::Settle, Op::Increment(0, i64::MAX), Op::Get(0)];
    // The image is older than the two additions.
    let later = [Op::OthersSet(0, 2), Op::Look, Op::Apply, Op::Get(0)];
    check(1 << 30, false, ops.into_iter().chain(adds).chain(later).collect());
    let own = [Op::OthersPut(0, None, 1), Op::Look, Op::Apply, Op::OthersAdd(0, -20), Op::Look, Op::Apply];
    let adds = [Op::Increment(0, 2), Op::Increment(0, i64::MAX), Op::OthersSet(0, 2), Op::Look, Op::Apply];
    check(1 << 30, false, own.into_iter().chain(adds).chain([Op::Get(0)]).collect());
}
