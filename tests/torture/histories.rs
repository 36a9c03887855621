//! Histories of keys on Valkey: clients that ask any server write and read the same keys, while servers and
//! nodes are killed, cut off, and have clocks that jump (`fixture`). Each history must be linearizable: there
//! is an order of all operations in which every answer is right, and in which an operation that ended before
//! another began comes first. An operation of unknown outcome was executed at any time after its request, or
//! never.
//!
//! A single Valkey syncs to disk, and every answer counts. On a cluster replicas make writes durable, and
//! a read or a refusal may show a write that a failover loses (docs/stores.md): there only the answers to
//! writes count, and the reads at the very end.

mod fixture;

use fixture::Fixture;
use forebay_tests::Client;
use forebay_topology::Topology;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 3;
/// Operations for each key: clients use the same few keys and proceed to the next ones roughly together,
/// because the search for an order takes exponential time in the overlapping operations.
const OPS_PER_KEY: usize = 8;
/// How long clients read and write in a round.
const LENGTH: Duration = Duration::from_secs(8);
/// How long a client retries for an answer.
const PATIENCE: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(30);
const BETWEEN_BURSTS: Duration = Duration::from_millis(100);

const CONFIG: &str = r#"
[table.cells]
columns = { id = "bigint key", value = "bigint" }

[[endpoint]]
route = "POST /cells/{id}"
insert = "cells"
values = { id = "$id", value = "$value" }
reply = { status = 201 }

[[endpoint]]
route = "PUT /cells/{id}"
upsert = "cells"
values = { value = "$value" }

[[endpoint]]
route = "PATCH /cells/{id}"
update = "cells"
values = { value = "$value" }

[[endpoint]]
route = "POST /cells/{id}/more"
increment = "cells"
column = "value"

[[endpoint]]
route = "DELETE /cells/{id}"
delete = "cells"

[[endpoint]]
route = "GET /cells/{id}"
get = "cells"
"#;

/// The sequential model of a row: its value, as the endpoints change it one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cell(Option<i64>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Insert(i64),
    Upsert(i64),
    Update(i64),
    Increment,
    Delete,
    Get,
}

/// The content of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    /// 200 or 201, with this value.
    Value(i64),
    /// 404.
    Missing,
    /// 409.
    Taken,
}

impl SequentialSpec for Cell {
    type Op = Op;
    type Ret = Said;

    fn invoke(&mut self, op: &Op) -> Said {
        let before = self.0;
        self.0 = match (op, before) {
            (Op::Insert(value), None) | (Op::Upsert(value), _) | (Op::Update(value), Some(_)) => Some(*value),
            (Op::Increment, Some(value)) => Some(value + 1),
            (Op::Delete, _) => None,
            _ => before,
        };
        match (op, before) {
            (Op::Insert(_), Some(_)) => Said::Taken,
            (Op::Delete, before) => before.map_or(Said::Missing, Said::Value),
            _ => self.0.map_or(Said::Missing, Said::Value),
        }
    }
}

/// A request or an answer for one key, in the order of time.
#[derive(Clone, Debug)]
enum Event {
    Asked(Op),
    Answered(Said),
    /// It was not done.
    Undone,
}

/// The events of each key, with the numbers of their operations.
type Histories = Mutex<BTreeMap<i64, Vec<(usize, Event)>>>;

/// What came of a request.
enum Reply {
    Said(Said),
    /// It was not done.
    Undone,
    /// The outcome is not known.
    Unknown,
}

struct Asker<'a> {
    servers: Vec<SocketAddr>,
    histories: &'a Histories,
    random: StdRng,
    /// Whether what a read shows cannot be lost.
    is_read_sure: bool,
    /// Numbers of operations are never used twice.
    next: usize,
}

impl Asker<'_> {
    fn run(mut self) -> Result<(), String> {
        let began = Instant::now();
        for key in (0..).take_while(|_| began.elapsed() < LENGTH) {
            for _ in 0..OPS_PER_KEY {
                // Distinct, also after some increments.
                let value = self.next as i64 * 1_000;
                let op = match self.random.random_range(0..10) {
                    0 => Op::Insert(value),
                    1 | 2 => Op::Upsert(value),
                    3 => Op::Update(value),
                    4 | 5 => Op::Increment,
                    6 => Op::Delete,
                    _ => Op::Get,
                };
                self.one(key, op)?;
                // In bursts, which overlap, and long enough for something to be killed meanwhile.
                if self.random.random_range(0..OPS_PER_KEY) == 0 {
                    thread::sleep(BETWEEN_BURSTS);
                }
            }
        }
        Ok(())
    }

    /// Asks until it is done, or its outcome cannot be known.
    fn one(&mut self, key: i64, op: Op) -> Result<(), String> {
        let began = Instant::now();
        loop {
            self.next += CLIENTS;
            self.note(key, Event::Asked(op));
            match self.ask(key, op)? {
                Reply::Said(said) => {
                    let changed_nothing = op == Op::Get || !matches!(said, Said::Value(_));
                    let counts = self.is_read_sure || !changed_nothing;
                    self.note(key, if counts { Event::Answered(said) } else { Event::Undone });
                    return Ok(());
                }
                Reply::Unknown => return Ok(()),
                Reply::Undone => self.note(key, Event::Undone),
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{op:?} of {key} is not answered"));
            }
            thread::sleep(PAUSE);
        }
    }

    fn note(&self, key: i64, event: Event) {
        self.histories.lock().expect("no thread panics").entry(key).or_default().push((self.next, event));
    }

    fn ask(&mut self, key: i64, op: Op) -> Result<Reply, String> {
        let address = self.servers.choose(&mut self.random).expect("there are some");
        let Ok(mut client) = Client::connect(*address) else { return Ok(Reply::Undone) };
        let row = format!("/cells/{key}");
        let (method, target, value) = match op {
            Op::Insert(value) => ("POST", row, Some(value)),
            Op::Upsert(value) => ("PUT", row, Some(value)),
            Op::Update(value) => ("PATCH", row, Some(value)),
            Op::Increment => ("POST", row + "/more", None),
            Op::Delete => ("DELETE", row, None),
            Op::Get => ("GET", row, None),
        };
        let body = value.map(|value| json!({ "value": value }).to_string());
        // A read that is not answered has done nothing.
        let unknown = || if op == Op::Get { Reply::Undone } else { Reply::Unknown };
        let Ok(answer) = client.call(method, &target, &[], body.as_deref()) else { return Ok(unknown()) };
        Ok(match answer.status {
            200 | 201 => {
                Reply::Said(Said::Value(answer.json()["value"].as_i64().expect("a row has a value")))
            }
            404 => Reply::Said(Said::Missing),
            409 => Reply::Said(Said::Taken),
            503 if !answer.text().contains("unknown") => Reply::Undone,
            503 | 504 => unknown(),
            _ => return Err(format!("{op:?} of {key}: {answer:?}")),
        })
    }
}

/// Whether there is an order in which everything was answered rightly.
fn is_linearizable(history: &[(usize, Event)]) -> bool {
    let undone =
        |number: usize| history.iter().any(|(of, event)| *of == number && matches!(event, Event::Undone));
    let mut tester = LinearizabilityTester::new(Cell::default());
    for (number, event) in history.iter().filter(|(number, _)| !undone(*number)) {
        // Each operation is a thread of its own: one of unknown outcome may be under way for ever.
        let noted = match event {
            Event::Asked(op) => tester.on_invoke(*number, *op).map(drop),
            Event::Answered(said) => tester.on_return(*number, *said).map(drop),
            Event::Undone => Ok(()),
        };
        noted.expect("an operation is asked for once and answered once");
    }
    tester.is_consistent()
}

/// One round. The error names the key whose history has no order, or what the database does not have.
pub fn run(seed: u64, topology: Topology) -> Result<(), String> {
    let is_read_sure = topology == Topology::Single;
    let mut random = StdRng::seed_from_u64(seed);
    let histories = Histories::default();
    let mut fixture = Fixture::new(topology);
    let outcome: Result<Vec<()>, String> = thread::scope(|scope| {
        let askers: Vec<_> = (0..CLIENTS)
            .map(|next| {
                let random = StdRng::seed_from_u64(random.random());
                let asker =
                    Asker { servers: fixture.addresses(), histories: &histories, random, is_read_sure, next };
                scope.spawn(move || asker.run())
            })
            .collect();
        while !askers.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(random.random_range(100..700)));
            fixture.harm(&mut random);
        }
        askers.into_iter().map(|asker| asker.join().expect("it does not panic")).collect()
    });
    outcome?;
    fixture.mend();
    let next =
        histories.lock().expect("no thread panics").values().flatten().map(|(number, _)| *number).max();
    let next = next.expect("something was asked");
    let mut last =
        Asker { servers: fixture.addresses(), histories: &histories, random, is_read_sure: true, next };
    let keys: Vec<i64> = histories.lock().expect("no thread panics").keys().copied().collect();
    keys.into_iter().try_for_each(|key| last.one(key, Op::Get))?;
    let histories = histories.into_inner().expect("no thread panics");
    if let Some((key, history)) = histories.iter().find(|(_, history)| !is_linearizable(history)) {
        return Err(format!("no order of what was done to {key}: {history:#?}"));
    }
    fixture.judge()?;
    println!("{topology}: {} keys, {:?}", histories.len(), fixture.happened);
    Ok(())
}

#[test]
fn a_history_without_an_order_is_found() {
    let history = |events: &[(usize, Event)]| is_linearizable(events);
    let (insert, get) = (Event::Asked(Op::Insert(7)), Event::Asked(Op::Get));
    let (seven, missing) = (Event::Answered(Said::Value(7)), Event::Answered(Said::Missing));
    // Of unknown outcome: it may show late, but what it showed once stays.
    let seen =
        [(1, insert.clone()), (2, get.clone()), (2, missing.clone()), (3, get.clone()), (3, seven.clone())];
    assert!(history(&seen));
    assert!(!history(&[&seen[..], &[(4, get.clone()), (4, missing.clone())]].concat()));
    // Acknowledged: it shows at once.
    assert!(!history(&[(1, insert.clone()), (1, seven.clone()), (2, get.clone()), (2, missing.clone())]));
    // Counted once, although it was asked for twice and one of them was not done.
    let more = [(2, Event::Asked(Op::Increment)), (2, Event::Undone), (3, Event::Asked(Op::Increment))];
    let counted = |value| {
        [(3, Event::Answered(Said::Value(value))), (4, get.clone()), (4, Event::Answered(Said::Value(value)))]
    };
    for (value, is_right) in [(8, true), (9, false)] {
        let events = [&[(1, insert.clone()), (1, seven.clone())][..], &more, &counted(value)].concat();
        assert_eq!(history(&events), is_right, "{value}");
    }
}
