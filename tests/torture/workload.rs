//! Clients over HTTP, each the owner of some rows, and others who write by SQL. They continue during
//! every fault and record their answers.

use crate::model::{Change, Fields, History, Outcome, RowKey, Step};
use crate::schema::{Drawn, Key, Shape, VIEWS, literal, one_of};
use forebay_tests::{Answer, Client};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of rows that a client has at one time.
const SLOTS: usize = 5;

/// Steps of one row that may be refused: each doubles the states that it may be in.
const DOUBTS: usize = 5;

/// The part of the writes that wait for the database.
const STRICT: f64 = 0.3;

/// The route of a write, and the expected outcome: a write that waits for the database is refused
/// before its answer or not at all.
fn strict_or_hot(random: &mut StdRng, target: String, drawn: Drawn) -> (String, Drawn) {
    match random.random_bool(STRICT) {
        true => (format!("/strict{target}"), Drawn { is_bad: false, is_relational: false, ..drawn }),
        false => (target, drawn),
    }
}

/// The state that all clients share.
pub struct RoundContext<'a> {
    pub shape: &'a Shape,
    pub history: &'a History,
    /// The current address of the server.
    pub address: SocketAddr,
    pub stop: &'a AtomicBool,
    /// The URL of the database itself, for writers by SQL.
    pub database: &'a str,
}

/// The outcome of a request.
enum Reply {
    Answer(Answer),
    Unknown,
    /// It was not sent.
    NotSent,
}

/// One connection, opened again when it was lost.
struct ClientConnection<'a> {
    stage: &'a RoundContext<'a>,
    client: Option<Client>,
}

impl ClientConnection<'_> {
    fn ask(&mut self, method: &str, target: &str, body: Option<&Value>) -> Reply {
        if self.client.is_none() {
            match Client::connect(self.stage.address) {
                Ok(client) => self.client = Some(client),
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(5));
                    return Reply::NotSent;
                }
            }
        }
        let Some(client) = &mut self.client else { return Reply::NotSent };
        let body = body.map(Value::to_string);
        match client.call(method, target, &[], body.as_deref()) {
            // Full, loading, or unknown: which of them does not matter here.
            Ok(answer) if matches!(answer.status, 503 | 504) => Reply::Unknown,
            Ok(answer) => Reply::Answer(answer),
            Err(_) => {
                self.client = None;
                Reply::Unknown
            }
        }
    }
}

/// A client, until it is told to stop.
pub fn client(stage: &RoundContext<'_>, number: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut owner = Owner {
        stage,
        line: ClientConnection { stage, client: None },
        number,
        steps: 0,
        slots: vec![None; SLOTS],
        retired: Vec::new(),
        parents: 0,
    };
    // Each client owns one of the initial rows for updates.
    if let Some(key) = stage.shape.pinned().get(number) {
        owner.slots[0] = Some(key.clone());
    }
    while !stage.stop.load(Ordering::Relaxed) {
        owner.step(&mut random);
    }
}

struct Owner<'a> {
    stage: &'a RoundContext<'a>,
    line: ClientConnection<'a>,
    number: usize,
    steps: usize,
    slots: Vec<Option<String>>,
    /// Rows whose last step is of unknown outcome: they are read and no longer changed.
    retired: Vec<String>,
    parents: usize,
}

impl Owner<'_> {
    fn token(&mut self) -> String {
        self.steps += 1;
        format!("c{}-{}", self.number, self.steps)
    }

    fn step(&mut self, random: &mut StdRng) {
        let slot = random.random_range(0..SLOTS);
        let is_pinned = slot == 0 && self.number < crate::schema::PINNED;
        match (self.slots[slot].clone(), random.random_range(0..100)) {
            (_, 0..10) => self.count(random),
            (_, 10..14) => self.parent(random),
            (_, 14..20) => self.look_at_retired(random),
            (_, 20..26) if self.stage.shape.is_tagged => self.count_rows(random),
            (_, 26..32) => self.read_sum(random),
            (None, _) => self.insert(random, slot),
            (Some(key), 20..40) => self.get("things", &key),
            (Some(key), 40..50) if !is_pinned => self.delete(random, &key, slot),
            (Some(key), 50..58) if !is_pinned && self.stage.shape.key != Key::Serial => {
                self.put(random, &key, slot)
            }
            (Some(key), 58..70) if !is_pinned => self.views(random, &key, slot),
            (Some(key), _) => self.update(random, &key, slot),
        }
    }

    fn insert(&mut self, random: &mut StdRng, slot: usize) {
        let token = self.token();
        let shape = self.stage.shape;
        let drawn = shape.values(random, &token, true, true);
        let key = shape.new_key(random, &token);
        let mut fields = drawn.fields.clone();
        fields.insert("views".into(), json!(random.random_range(0..5)));
        let mut body = fields.clone();
        if let Some(key) = &key {
            body.insert("id".into(), key.clone());
        }
        let (target, drawn) = strict_or_hot(random, "/things".into(), drawn);
        let began = self.stage.history.tick();
        let told = self.line.ask("POST", &target, Some(&json!(body)));
        let known = match (&told, key) {
            (Reply::Answer(answer), None) if answer.status == 201 => Some(answer.json()["id"].to_string()),
            (_, key) => key.and_then(|key| key.as_str().map(str::to_owned)),
        };
        match known {
            Some(key) => {
                self.slots[slot] = Some(key.clone());
                self.note(&key, Some(slot), Change::Whole(fields), &drawn, began, told);
            }
            None if matches!(told, Reply::Unknown) => {
                let step = self.step_of(Change::Whole(fields), &drawn, began, Outcome::Unknown);
                self.stage.history.nameless.lock().expect("no thread panics").push(step);
            }
            None => {}
        }
    }

    fn put(&mut self, random: &mut StdRng, key: &str, slot: usize) {
        let token = self.token();
        let drawn = self.stage.shape.values(random, &token, true, true);
        let mut fields = drawn.fields.clone();
        fields.insert("views".into(), json!(random.random_range(0..5)));
        let (target, drawn) = strict_or_hot(random, format!("/things/{key}"), drawn);
        let began = self.stage.history.tick();
        let told = self.line.ask("PUT", &target, Some(&json!(fields)));
        self.note(key, Some(slot), Change::Whole(fields), &drawn, began, told);
    }

    fn update(&mut self, random: &mut StdRng, key: &str, slot: usize) {
        let token = self.token();
        let drawn = self.stage.shape.values(random, &token, false, true);
        let (target, drawn) = strict_or_hot(random, format!("/things/{key}"), drawn);
        let began = self.stage.history.tick();
        let told = self.line.ask("PATCH", &target, Some(&json!(drawn.fields)));
        self.note(key, Some(slot), Change::Some(drawn.fields.clone()), &drawn, began, told);
    }

    fn views(&mut self, random: &mut StdRng, key: &str, slot: usize) {
        let by = random.random_range(1..5);
        let drawn = Drawn { fields: Fields::new(), is_bad: false, is_relational: false };
        let (target, drawn) = strict_or_hot(random, format!("/things/{key}/views"), drawn);
        let began = self.stage.history.tick();
        let told = self.line.ask("POST", &target, Some(&json!({ "by": by })));
        self.note(key, Some(slot), Change::Views(by), &drawn, began, told);
    }

    fn delete(&mut self, random: &mut StdRng, key: &str, slot: usize) {
        let drawn = Drawn { fields: Fields::new(), is_bad: false, is_relational: false };
        let (target, drawn) = strict_or_hot(random, format!("/things/{key}"), drawn);
        let began = self.stage.history.tick();
        let told = self.line.ask("DELETE", &target, None);
        self.note(key, Some(slot), Change::Delete, &drawn, began, told);
        self.slots[slot] = None;
    }

    /// Records a step, and frees the slot when the row's further states would be unknown.
    fn note(&mut self, key: &str, slot: Option<usize>, deed: Change, drawn: &Drawn, began: u64, told: Reply) {
        let outcome = match told {
            Reply::NotSent => None,
            Reply::Unknown => Some(Outcome::Unknown),
            Reply::Answer(answer) if answer.status < 300 => Some(Outcome::Acknowledged),
            Reply::Answer(answer) if answer.status < 500 => None,
            Reply::Answer(answer) => panic!("{deed:?} of {key}: {answer:?}"),
        };
        let is_new = matches!(deed, Change::Whole(_)) && !self.exists(key);
        let Some(outcome) = outcome else {
            if let Some(slot) = slot.filter(|_| is_new) {
                self.slots[slot] = None;
            }
            return;
        };
        let step = self.step_of(deed, drawn, began, outcome);
        // A later refusal is undone, so the row stays in use for a while, except one that may never have
        // existed.
        let is_doubtful =
            outcome == Outcome::Unknown || step.may_be_refused && (is_new || self.doubts(key) == DOUBTS);
        self.stage.history.add(("things", key.to_owned()), step);
        if let Some(slot) = slot.filter(|_| is_doubtful) {
            self.slots[slot] = None;
            self.retired.push(key.to_owned());
        }
    }

    fn step_of(&self, deed: Change, drawn: &Drawn, began: u64, outcome: Outcome) -> Step {
        Step {
            token: drawn.fields.get("note").and_then(Value::as_str).map(str::to_owned),
            deed,
            outcome,
            may_be_refused: drawn.is_bad || drawn.is_relational,
            is_bad: drawn.is_bad,
            is_seen: false,
            began,
            ended: self.stage.history.tick(),
        }
    }

    /// How many steps of a row may be refused.
    fn doubts(&self, key: &str) -> usize {
        let rows = self.stage.history.rows.lock().expect("no thread panics");
        let row = rows.get(&("things", key.to_owned()));
        row.map_or(0, |row| row.steps.iter().filter(|step| step.may_be_refused).count())
    }

    fn exists(&self, key: &str) -> bool {
        let rows = self.stage.history.rows.lock().expect("no thread panics");
        rows.contains_key(&("things", key.to_owned()))
    }

    fn get(&mut self, table: &'static str, key: &str) {
        let Reply::Answer(answer) = self.line.ask("GET", &format!("/{table}/{key}"), None) else { return };
        let place: RowKey = (table, key.to_owned());
        match answer.status {
            200 => self.stage.history.shown(&place, answer.json()["note"].as_str()),
            404 => self.stage.history.shown(&place, None),
            _ => panic!("GET /{table}/{key}: {answer:?}"),
        }
    }

    fn look_at_retired(&mut self, random: &mut StdRng) {
        if !self.retired.is_empty() {
            let key = one_of(random, &self.retired).clone();
            self.get("things", &key);
        }
    }

    /// Increments a shared row, through the server or by SQL.
    fn count(&mut self, random: &mut StdRng) {
        let key = one_of(random, &self.stage.shape.pinned()).clone();
        let by_sql = self.stage.shape.is_shared && random.random_bool(0.3);
        let (column, target) = if by_sql {
            ("stock", format!("/sql/things/{key}/stock"))
        } else {
            let strict = if random.random_bool(STRICT) { "/strict" } else { "" };
            ("views", format!("{strict}/things/{key}/views"))
        };
        let by = if by_sql { 1 } else { random.random_range(1..5) };
        self.stage.history.sends(&key, column, by);
        let outcome = match self.line.ask("POST", &target, Some(&json!({ "by": by }))) {
            Reply::Answer(answer) if answer.status == 200 => Outcome::Acknowledged,
            Reply::Answer(answer) => panic!("POST {target}: {answer:?}"),
            Reply::Unknown => Outcome::Unknown,
            Reply::NotSent => return,
        };
        self.stage.history.count(&key, column, by, outcome);
    }

    /// Has a count of rows cached, which is compared at the end.
    fn count_rows(&mut self, random: &mut StdRng) {
        let target = format!("/with/{}", random.random_range(0..VIEWS));
        if let Reply::Answer(answer) = self.line.ask("GET", &target, None) {
            assert_eq!(answer.status, 200, "GET {target}: {answer:?}");
        }
    }

    /// Reads a shared row: the sum must not be more than was sent, or less than was acknowledged.
    fn read_sum(&mut self, random: &mut StdRng) {
        let key = one_of(random, &self.stage.shape.pinned()).clone();
        let acknowledged = self.stage.history.acknowledged(&key);
        let target = format!("/things/{key}");
        if let Reply::Answer(answer) = self.line.ask("GET", &target, None) {
            let shown = answer.expect(200)["views"].as_i64().unwrap_or(i64::MAX);
            self.stage.history.sum_shown(&key, acknowledged, shown);
        }
    }

    /// Inserts a parent of the client's own, or deletes it permanently.
    fn parent(&mut self, random: &mut StdRng) {
        // The first client owns the two parents that things may refer to and that do not always
        // exist.
        if self.number != 0 || self.parents >= 4 {
            return;
        }
        let key = format!("p{}", crate::schema::PARENTS + self.parents / 2);
        let inserts = self.parents.is_multiple_of(2);
        let token = self.token();
        let (method, target, deed) = if inserts {
            let fields = Fields::from([("note".to_owned(), json!(token))]);
            ("POST", "/parents".to_owned(), Change::Whole(fields))
        } else if random.random_bool(0.5) {
            ("DELETE", format!("/parents/{key}"), Change::Delete)
        } else {
            return;
        };
        let body = inserts.then(|| json!({ "id": key, "note": token }));
        let began = self.stage.history.tick();
        let outcome = match self.line.ask(method, &target, body.as_ref()) {
            Reply::Answer(answer) if answer.status < 300 => Outcome::Acknowledged,
            Reply::Answer(answer) => panic!("{method} {target}: {answer:?}"),
            Reply::Unknown => Outcome::Unknown,
            Reply::NotSent => return,
        };
        let ended = self.stage.history.tick();
        let token = inserts.then_some(token);
        let may_be_refused = deed == Change::Delete;
        let step = Step { deed, token, outcome, may_be_refused, is_bad: false, is_seen: false, began, ended };
        self.stage.history.add(("parents", key), step);
        // After an unknown step the parent is not changed any more.
        self.parents = if outcome == Outcome::Unknown { 4 } else { self.parents + 1 };
    }
}

/// Another writer, which uses SQL, until it is stopped.
pub fn other(stage: &RoundContext<'_>, number: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut client: Option<postgres::Client> = None;
    let mut own: Option<String> = None;
    for step in 0.. {
        if stage.stop.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..8)));
        let Some(open) = &mut client else {
            client = postgres::Client::connect(stage.database, postgres::NoTls).ok();
            continue;
        };
        let done = match random.random_range(0..3) {
            0 => add_to_stock(stage, open, &mut random),
            _ => own_row(stage, open, &mut random, &format!("o{number}-{step}"), &mut own),
        };
        if done.is_err() {
            client = None;
        }
    }
}

fn add_to_stock(
    stage: &RoundContext<'_>,
    client: &mut postgres::Client,
    random: &mut StdRng,
) -> Result<(), postgres::Error> {
    let key = one_of(random, &stage.shape.pinned()).clone();
    let sql = format!("UPDATE things SET stock = stock + 1 WHERE id::text = '{key}'");
    let done = client.batch_execute(&sql);
    let outcome = if done.is_ok() { Outcome::Acknowledged } else { Outcome::Unknown };
    stage.history.count(&key, "stock", 1, outcome);
    done
}

/// Inserts or deletes a row of its own.
fn own_row(
    stage: &RoundContext<'_>,
    client: &mut postgres::Client,
    random: &mut StdRng,
    token: &str,
    own: &mut Option<String>,
) -> Result<(), postgres::Error> {
    let gone = own.take();
    let (deed, sql, note) = match &gone {
        Some(key) => {
            (Change::Delete, format!("DELETE FROM things WHERE id::text = '{key}' RETURNING id::text"), None)
        }
        None => {
            let mut fields = stage.shape.values(random, token, true, false).fields;
            // Others take codes that Forebay's clients use too; they have their own pairs.
            for name in ["one", "two"] {
                fields
                    .entry(name.into())
                    .and_modify(|value| *value = json!(random.random_range(10_000..1_000_000)));
            }
            let mut names: Vec<String> = fields.keys().cloned().collect();
            let mut texts: Vec<String> = fields.values().map(literal).collect();
            if let Some(key) = stage.shape.new_key(random, token) {
                names.push("id".into());
                texts.push(literal(&key));
            }
            if let Some(code) = fields.get("code").and_then(Value::as_str) {
                stage.history.taken_by_others.lock().expect("no thread panics").push(code.to_owned());
            }
            let (names, texts) = (names.join(", "), texts.join(", "));
            let sql = format!(
                "INSERT INTO things ({names}) VALUES ({texts}) ON CONFLICT DO NOTHING RETURNING id::text"
            );
            (Change::Whole(fields), sql, Some(token.to_owned()))
        }
    };
    let began = stage.history.tick();
    let step = |deed, token, outcome| {
        let ended = stage.history.tick();
        Step { deed, token, outcome, may_be_refused: false, is_bad: false, is_seen: false, began, ended }
    };
    match client.query(&sql, &[]) {
        Ok(rows) => {
            if let Some(key) = rows.first().map(|row| row.get::<_, String>(0)) {
                *own = (deed != Change::Delete).then(|| key.clone());
                stage.history.add(("things", key), step(deed, note, Outcome::Acknowledged));
            }
            Ok(())
        }
        // The parent does not exist.
        Err(error) if error.as_db_error().is_some_and(|db| db.code().code().starts_with("23")) => Ok(()),
        Err(error) => {
            match gone {
                Some(key) => stage.history.add(("things", key), step(Change::Delete, None, Outcome::Unknown)),
                // The key is unknown: the row may exist once.
                None => {
                    let step = step(deed, note, Outcome::Unknown);
                    stage.history.nameless.lock().expect("no thread panics").push(step);
                }
            }
            Err(error)
        }
    }
}
