//! A client that writes in an order that the database's constraints allow, and records its answers.
//!
//! On one Redis that syncs, a row shown by a read is as durable as an acknowledged one, so a write of
//! unknown outcome is resolved by a read. Where replicas make writes durable, a read may show a row that a
//! failover loses: there the row, and every value that it may have, is not used again.

use forebay_tests::{Answer, Client};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const OPS: usize = 300;
/// There are few unique values, so that they often move between rows.
const EMAILS: usize = 4;
const PLACES: i64 = 5;
/// The highest number of seats, enforced by a trigger.
const SEATS_MAX: usize = 4;
/// Halls of one client at most.
const HALLS: i64 = 1_000;
/// How long an unanswered write may still be executed, and how long a client retries.
const UNDER_WAY: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(50);

/// Rows by table and id, each as its JSON.
pub type Rows = BTreeMap<(&'static str, String), Value>;

/// The rows of a client, by its answers.
#[derive(Default)]
pub struct WriterRecord {
    pub rows: Rows,
    /// Rows that may exist or not.
    pub doubtful: BTreeSet<(&'static str, String)>,
}

/// One client, whose values no other client uses.
pub struct Writer {
    number: usize,
    servers: Vec<SocketAddr>,
    random: StdRng,
    /// Whether what a read shows cannot be lost.
    is_read_sure: bool,
    told: WriterRecord,
    emails: Vec<String>,
    /// Emails that were ever in use.
    emails_made: usize,
    /// Parents that may have unknown children.
    pinned: BTreeSet<String>,
    hall: i64,
}

/// The outcome of a request.
enum Reply {
    Answer(Answer),
    /// It was not sent.
    Unsent,
    /// It was sent, and not answered.
    Lost,
}

impl Writer {
    pub fn new(number: usize, servers: Vec<SocketAddr>, random: StdRng, is_read_sure: bool) -> Writer {
        let mut writer = Writer {
            number,
            servers,
            random,
            is_read_sure,
            told: WriterRecord::default(),
            emails: Vec::new(),
            emails_made: 0,
            pinned: BTreeSet::new(),
            hall: number as i64 * HALLS,
        };
        writer.fill_emails();
        writer
    }

    pub fn run(mut self) -> Result<WriterRecord, String> {
        for _ in 0..OPS {
            self.one()?;
        }
        Ok(self.told)
    }

    fn fill_emails(&mut self) {
        while self.emails.len() < EMAILS {
            self.emails.push(format!("{}-{}", self.number, self.emails_made));
            self.emails_made += 1;
        }
    }

    fn of(&self, table: &str) -> Vec<(String, Value)> {
        let rows = self.told.rows.iter().filter(|((of, _), _)| *of == table);
        rows.map(|((_, id), row)| (id.clone(), row.clone())).collect()
    }

    fn pick(&mut self, table: &str) -> Option<(String, Value)> {
        self.of(table).choose(&mut self.random).cloned()
    }

    fn one(&mut self) -> Result<(), String> {
        let id = uuid::Uuid::from_u128(self.random.random()).to_string();
        match self.random.random_range(0..10) {
            0 | 1 => match self.free_email() {
                Some(email) => self.insert("users", json!({ "id": id, "email": email })),
                None => self.delete_any("users"),
            },
            2 | 3 => match (self.pick("users"), self.free_email()) {
                (Some((id, _)), Some(email)) => self.update("users", &id, "email", email.into()),
                _ => self.delete_any("users"),
            },
            4 => self.insert("parents", json!({ "id": id })),
            5 => match self.pick("parents") {
                Some((parent, _)) => self.insert("children", json!({ "id": id, "parent": parent })),
                None => self.insert("parents", json!({ "id": id })),
            },
            6 => match (self.pick("children"), self.pick("parents")) {
                (Some((child, _)), Some((parent, _))) if self.random.random() => {
                    self.update("children", &child, "parent", parent.into())
                }
                _ => self.delete_any("children"),
            },
            7 => {
                let children = self.of("children");
                let parents = self.of("parents").into_iter().map(|(id, _)| id);
                let is_childless = |id: &String| children.iter().all(|(_, child)| child["parent"] != **id);
                let childless: Vec<String> =
                    parents.filter(|id| is_childless(id) && !self.pinned.contains(id)).collect();
                match childless.choose(&mut self.random).cloned() {
                    Some(parent) => self.delete("parents", &parent),
                    None => self.delete_any("children"),
                }
            }
            _ => self.seat(&id),
        }
    }

    fn free_email(&mut self) -> Option<String> {
        let taken = self.of("users");
        let free = self.emails.iter().filter(|email| taken.iter().all(|(_, row)| row["email"] != ***email));
        let free: Vec<String> = free.cloned().collect();
        free.choose(&mut self.random).cloned()
    }

    /// Adds, moves or frees a seat in the client's hall, which has few seats, each at a different
    /// place.
    fn seat(&mut self, id: &str) -> Result<(), String> {
        let mut taken = self.of("seats");
        taken.retain(|(_, row)| row["hall"] == self.hall);
        let free: Vec<i64> =
            (0..PLACES).filter(|place| taken.iter().all(|(_, row)| row["place"] != *place)).collect();
        let place = *free.choose(&mut self.random).expect("there are more places than seats");
        match taken.choose(&mut self.random).cloned() {
            Some((seat, _)) if self.random.random_range(0..3) == 0 => {
                self.update("seats", &seat, "place", place.into())
            }
            Some((seat, _)) if taken.len() >= SEATS_MAX => self.delete("seats", &seat),
            _ => self.insert("seats", json!({ "id": id, "hall": self.hall, "place": place })),
        }
    }

    fn insert(&mut self, table: &'static str, row: Value) -> Result<(), String> {
        let id = row["id"].as_str().expect("a text").to_owned();
        let is_done = self.until_known("POST", table, &id, Some(&row), |found| found.is_some())?;
        let key = (table, id);
        if is_done {
            drop(self.told.rows.insert(key, row))
        } else {
            self.doubt(key, &[row])
        }
        Ok(())
    }

    fn update(&mut self, table: &'static str, id: &str, column: &str, value: Value) -> Result<(), String> {
        let body = json!({ column: value });
        let is_done = self.until_known("PATCH", table, id, Some(&body), |found| {
            found.is_some_and(|row| row[column] == value)
        })?;
        let key = (table, id.to_owned());
        let before = self.told.rows[&key].clone();
        let mut after = before.clone();
        after[column] = value;
        if is_done {
            drop(self.told.rows.insert(key, after))
        } else {
            self.doubt(key, &[before, after])
        }
        Ok(())
    }

    fn delete_any(&mut self, table: &'static str) -> Result<(), String> {
        self.pick(table).map_or(Ok(()), |(id, _)| self.delete(table, &id))
    }

    fn delete(&mut self, table: &'static str, id: &str) -> Result<(), String> {
        let is_done = self.until_known("DELETE", table, id, None, |found| found.is_none())?;
        let key = (table, id.to_owned());
        let row = self.told.rows[&key].clone();
        if is_done {
            drop(self.told.rows.remove(&key))
        } else {
            self.doubt(key, &[row])
        }
        Ok(())
    }

    /// Marks a row as doubtful and stops using all values that it may have: the row is one of
    /// `rows`, or does not exist.
    fn doubt(&mut self, key: (&'static str, String), rows: &[Value]) {
        self.told.rows.remove(&key);
        for row in rows {
            self.emails.retain(|email| row["email"] != **email);
            self.pinned.extend(row["parent"].as_str().map(str::to_owned));
        }
        self.fill_emails();
        self.hall += i64::from(key.0 == "seats");
        self.told.doubtful.insert(key);
    }

    /// Retries until the answer, or the row, shows that the write is done. Returns false if the
    /// outcome stays unknown.
    fn until_known(
        &mut self,
        method: &str,
        table: &str,
        id: &str,
        body: Option<&Value>,
        is_done: impl Fn(Option<&Value>) -> bool,
    ) -> Result<bool, String> {
        let row = format!("/{table}/{id}");
        let target = if method == "POST" { format!("/{table}") } else { row.clone() };
        let body = body.map(Value::to_string);
        let began = Instant::now();
        let told =
            |answer: &Answer, number| format!("client {number}: {method} {target} {body:?}: {answer:?}");
        loop {
            let reply = self.ask(method, &target, body.as_deref());
            if matches!(&reply, Reply::Answer(answer) if answer.status < 300) {
                return Ok(true);
            }
            let mut found = None;
            if self.is_read_sure {
                thread::sleep(UNDER_WAY);
                found = self.row(&row, began)?;
                if is_done(found.as_ref()) {
                    return Ok(true);
                }
            }
            match reply {
                Reply::Answer(answer) if answer.status < 503 => {
                    return Err(format!("{}, and there is {found:?}", told(&answer, self.number)));
                }
                Reply::Unsent => {}
                Reply::Answer(answer) if answer.status == 503 && !answer.text().contains("unknown") => {}
                Reply::Answer(_) | Reply::Lost if self.is_read_sure => {}
                Reply::Answer(_) | Reply::Lost => return Ok(false),
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("client {}: {method} {target} is not answered", self.number));
            }
            thread::sleep(PAUSE);
        }
    }

    /// A row as a GET shows it.
    fn row(&mut self, target: &str, began: Instant) -> Result<Option<Value>, String> {
        loop {
            match self.ask("GET", target, None) {
                Reply::Answer(answer) if answer.status == 200 => return Ok(Some(answer.json())),
                Reply::Answer(answer) if answer.status == 404 => return Ok(None),
                _ if began.elapsed() > PATIENCE => return Err(format!("{target} is not served")),
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Sends a request to a random server.
    fn ask(&mut self, method: &str, target: &str, body: Option<&str>) -> Reply {
        let address = self.servers.choose(&mut self.random).expect("there are some");
        let Ok(mut client) = Client::connect(*address) else { return Reply::Unsent };
        client.call(method, target, &[], body).map_or(Reply::Lost, Reply::Answer)
    }
}
