//! One history: the writes of clients, what others do meanwhile, and what is compared.

use crate::history::{TABLES, Write, ddl_of_others, of_others, of_others_apart};
use crate::json::members;
use crate::site::{Site, Way, brief, soon};
use crate::twin::{Rows, STEP, Twin};
use forebay_tests::{Answer, Server, request_bytes};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

/// How often each kind of step was taken.
pub type Steps = BTreeMap<&'static str, u64>;

/// What happens once in a history, at a random write, as its seed says: each of them in any
/// [`Event::ALL`] seeds that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Kill,
    KillAfterCheckpoint,
    /// A kill during a write with `durability = "database"`.
    KillDuringStrict,
    /// The server's connections to the database are ended.
    Cut,
    CutDuringStrict,
    /// A write with `durability = "database"` whose time is over before the drain goes on.
    Lapse,
    /// The Redis is killed, and starts on its data.
    KillRedis,
    KillRedisDuringWrite,
}

impl Event {
    const ALL: u64 = 20;

    fn of(way: Way, seed: u64) -> Option<Event> {
        if way == Way::Redis {
            return Some(match seed % Event::ALL {
                2 => Event::Kill,
                5 | 8 => Event::KillRedis,
                1 | 7 | 13 | 17 => Event::KillRedisDuringWrite,
                11 => Event::Cut,
                _ => return None,
            });
        }
        Some(match seed % Event::ALL {
            2 => Event::Kill,
            5 | 15 => Event::KillDuringStrict,
            8 => Event::KillAfterCheckpoint,
            11 => Event::Cut,
            1 | 13 => Event::CutDuringStrict,
            7 | 17 => Event::Lapse,
            _ => return None,
        })
    }
}

/// What an answer says of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Refused,
    /// It was done as a whole or not at all.
    Unknown,
}

/// Why a history did not reach its end.
pub enum Ended {
    Failed(String),
    /// The database was too slow for the drain: on an overloaded machine.
    Stopped,
}

/// What the server prints when a table's changes are too slow.
const STOPPED: &str = "makes no progress";

pub struct Round<'a> {
    site: &'a Site,
    twin: &'a mut Twin,
    steps: &'a mut Steps,
    server: Option<Server>,
    base: i64,
    seed: u64,
    random: StdRng,
    /// Rows with an acknowledged write that the shadow refused.
    refused: BTreeMap<(usize, i64), String>,
    /// Those of them that may not be in the database yet.
    open: BTreeSet<(usize, i64)>,
    /// Rows that were written.
    touched: BTreeSet<(usize, i64)>,
    /// What servers printed that were killed, and how much the present one had printed before.
    printed: String,
    before: usize,
    began: Instant,
    /// What happened, and when, for a failure.
    story: Vec<String>,
}

impl<'a> Round<'a> {
    /// The history of a seed, the `number`th of its site.
    pub fn new(
        site: &'a Site,
        twin: &'a mut Twin,
        steps: &'a mut Steps,
        server: Server,
        number: i64,
        seed: u64,
    ) -> Round<'a> {
        Round {
            site,
            twin,
            steps,
            base: number * STEP,
            seed,
            random: StdRng::seed_from_u64(seed),
            refused: BTreeMap::new(),
            open: BTreeSet::new(),
            touched: BTreeSet::new(),
            printed: String::new(),
            before: server.output().len(),
            server: Some(server),
            began: Instant::now(),
            story: Vec::new(),
        }
    }

    /// Runs it; its server goes on, unless it failed.
    pub fn run(mut self) -> Result<Server, Ended> {
        let Err(what) = self.all() else { return Ok(self.server.take().expect("it runs")) };
        let output = self.server.as_ref().map(Server::output).unwrap_or_default();
        self.printed += &output[self.before..];
        // The changes of a table that the drain has stopped come later, so no order of all is left to judge.
        if self.printed.contains(STOPPED) || what.contains(STOPPED) {
            return Err(Ended::Stopped);
        }
        let lines: Vec<&str> = output.lines().rev().take(8).collect();
        let story = self.story.join("\n  ");
        Err(Ended::Failed(format!("{what}\n  {story}\n  it printed, the last first: {lines:#?}")))
    }

    /// Kills the server, during whatever it does.
    fn kill_it(&mut self) {
        let server = self.server.take().expect("it runs");
        self.printed += &server.output()[self.before..];
        self.before = 0;
        server.kill();
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn note(&mut self, what: impl Into<String>) {
        let at = self.began.elapsed().as_millis();
        self.story.push(format!("{at} ms: {}", what.into()));
    }

    fn step(&mut self, kind: &'static str) {
        *self.steps.entry(kind).or_default() += 1;
    }

    /// One request; an acknowledged write is one for the shadow.
    fn write(&mut self, is_strict: bool) -> Result<(), String> {
        let write = Write::draw(self.site.way, self.base, is_strict, &mut self.random);
        // What is refused and what comes after it may be merged, or together be accepted: both are
        // right, and the shadow knows only one.
        let row = (write.table, write.id);
        let is_alone = self.site.way == Way::Redis && write.may_exclude_another();
        if is_alone || self.open.contains(&row) || write.makes_a_parent() && !self.open.is_empty() {
            self.settle()?;
        }
        self.send(write)
    }

    fn send(&mut self, write: Write) -> Result<(), String> {
        self.touched.insert((write.table, write.id));
        let mut client = self.server().client();
        let answer = client.call(write.method, &write.target, &[], write.body.as_deref());
        let answer = answer.map_err(|error| format!("{} {}: {error}", write.method, write.target))?;
        match self.outcome(&write, &answer)? {
            Outcome::Done => {
                self.step(if write.is_strict() { "strict write" } else { write.method });
                self.replay(&write);
                // Shards are drained side by side: what is refused, and what acts on other rows, waits for
                // all of them, and counts as later than what is acknowledged meanwhile.
                if self.site.way == Way::Redis
                    && (write.acts() || write.may_exclude_another() || !self.open.is_empty())
                {
                    return self.settle();
                }
                self.is_stored(&write)
            }
            Outcome::Refused => {
                self.step(if write.is_strict() { "strict write refused" } else { "refused" });
                Ok(())
            }
            Outcome::Unknown => Err(format!("{} {}: {}", write.method, write.target, brief(&answer))),
        }
    }

    /// What an answer says of a write. None of unknown outcome invites to try again.
    fn outcome(&mut self, write: &Write, answer: &Answer) -> Result<Outcome, String> {
        let Write { method, target, body, .. } = write;
        self.note(format!("{method} {target} {} -> {}", body.as_deref().unwrap_or_default(), answer.status));
        let is_unknown = String::from_utf8_lossy(&answer.body).contains("outcome unknown");
        let may_retry = answer.header("retry-after").is_some();
        Ok(match answer.status {
            200..300 => Outcome::Done,
            400..500 => Outcome::Refused,
            503 if may_retry && !is_unknown => Outcome::Refused,
            503 if is_unknown && !may_retry => Outcome::Unknown,
            _ => return Err(format!("{method} {target}: Retry-After {may_retry}: {}", brief(answer))),
        })
    }

    /// What a write with `durability = "database"` did is in the database when it is answered, and with it
    /// everything that was acknowledged before.
    fn is_stored(&mut self, write: &Write) -> Result<(), String> {
        if !write.is_strict() {
            return Ok(());
        }
        let (found, expected) = self.twin.rows(self.base);
        match expected == found {
            true => Ok(()),
            false => Err(format!(
                "{} was answered before it was stored: {}",
                write.target,
                differences(&expected, &found)
            )),
        }
    }

    /// A write with `durability = "database"` that the database takes, in most cases: of another the answer
    /// comes too soon to meet anything.
    fn draw_strict(&mut self) -> Write {
        for _ in 0..30 {
            let write = Write::draw(self.site.way, self.base, true, &mut self.random);
            if self.twin.would_take(&write.sql) {
                return write;
            }
        }
        Write::draw(self.site.way, self.base, true, &mut self.random)
    }

    /// Sends a write with `durability = "database"`, and does something meanwhile.
    fn during(&mut self, write: &Write, meanwhile: impl FnOnce(&mut Self)) -> io::Result<Answer> {
        self.touched.insert((write.table, write.id));
        let mut client = self.server().client();
        let (method, target, body) = (write.method, write.target.clone(), write.body.clone());
        let asking = std::thread::spawn(move || client.call(method, &target, &[], body.as_deref()));
        meanwhile(self);
        asking.join().expect("a client does not panic")
    }

    /// Some moment while a write with `durability = "database"` is answered.
    fn wait_a_moment(&mut self) {
        let longest = if self.site.way.is_postgres() { 25_000 } else { 6_000 };
        std::thread::sleep(Duration::from_micros(self.random.random_range(0..longest)));
    }

    /// A kill during a write with `durability = "database"`.
    fn kill_during_strict(&mut self) -> Result<(), String> {
        self.settle()?;
        let write = self.draw_strict();
        let answer = self.during(&write, |round| {
            round.wait_a_moment();
            round.kill_it();
        });
        self.note("kill -9 during the next write");
        self.server = Some(self.site.serve()?);
        let kinds =
            ["kill before the answer: done", "kill before the answer: not done", "kill after the answer"];
        self.is_explained(&write, answer, kinds)
    }

    /// The server loses its connections during a write with `durability = "database"`.
    fn cut_during_strict(&mut self) -> Result<(), String> {
        self.settle()?;
        let write = self.draw_strict();
        let answer = self.during(&write, |round| {
            round.wait_a_moment();
            round.twin.cut();
        });
        self.note("connections are cut during the next write");
        self.is_explained(&write, answer, ["cut: unknown, done", "cut: unknown, not done", "cut: answered"])
    }

    fn restart_redis(&mut self) -> Result<(), String> {
        self.site.restart_redis();
        self.site.wait_ready(self.server.as_mut().expect("it runs"))
    }

    /// The Redis is killed during a write.
    fn kill_redis_during_write(&mut self) -> Result<(), String> {
        self.settle()?;
        let mut write = self.draw_strict();
        write.target = write.target.replacen("/strict/", "/", 1);
        let mut restarted = Ok(());
        let answer = self.during(&write, |round| {
            std::thread::sleep(Duration::from_micros(round.random.random_range(0..1500)));
            restarted = round.restart_redis();
        });
        restarted?;
        self.note("the Redis is killed during the next write");
        let kinds =
            ["Redis killed: unknown, done", "Redis killed: unknown, not done", "Redis killed: answered"];
        self.is_explained(&write, answer, kinds)
    }

    /// A write whose time is over while the drain is paused: it stays in the log.
    fn lapse(&mut self) -> Result<(), String> {
        self.settle()?;
        let mut write = self.draw_strict();
        write.target = write.target.replacen("/strict/", "/brief/", 1);
        self.note("the drain is paused");
        self.server().pause_drain(true);
        let answer = self.during(&write, |_| {});
        let kinds = ["lapse: unknown, done", "lapse: unknown, not done", "lapse: answered"];
        self.is_explained(&write, answer, kinds)
    }

    /// Finds out what became of a write that may have no answer; it is done as a whole or not at all.
    fn is_explained(
        &mut self,
        write: &Write,
        answer: io::Result<Answer>,
        [done, not_done, answered]: [&'static str; 3],
    ) -> Result<(), String> {
        let outcome = match &answer {
            Ok(answer) => self.outcome(write, answer)?,
            Err(_) => {
                self.note(format!("{} {} {:?} -> no answer", write.method, write.target, write.body));
                Outcome::Unknown
            }
        };
        match outcome {
            Outcome::Done => {
                self.step(answered);
                self.replay(write);
                self.is_stored(write)?;
            }
            Outcome::Refused => self.step(answered),
            Outcome::Unknown => {
                self.drain()?;
                let (found, expected) = self.twin.rows(self.base);
                self.step(if found == expected { not_done } else { done });
                if found != expected {
                    self.note("it was done");
                    self.replay(write);
                }
            }
        }
        self.settle()
    }

    fn others(&mut self, sql: &str) {
        self.note(format!("others: {sql}"));
        self.twin.others(sql);
    }

    /// Executes in the shadow what was acknowledged.
    fn replay(&mut self, write: &Write) {
        let table = TABLES[write.table].name;
        let refusal = match self.twin.replay(&write.sql) {
            Ok(0) if write.is_insert() || self.twin.has(table, write.id) => "skipped".to_owned(),
            Ok(_) => return,
            Err(error) => error,
        };
        self.step("refused after the answer");
        self.note(format!("the shadow refuses {}: {refusal:.200}", write.sql));
        self.refused.insert((write.table, write.id), refusal);
        self.open.insert((write.table, write.id));
    }

    fn drain(&mut self) -> Result<(), String> {
        match self.server().try_drain() {
            Ok(answer) if answer.status < 300 => Ok(()),
            Ok(answer) => Err(format!("the drain does not finish: {}", brief(&answer))),
            Err(error) => Err(format!("the drain does not finish: {error}")),
        }
    }

    /// Everything acknowledged is in the database, and memory shows it.
    fn settle(&mut self) -> Result<(), String> {
        self.drain()?;
        self.open.clear();
        self.note("drained");
        let (mut stored, expected) = self.twin.rows(self.base);
        if expected != stored {
            return Err(format!("the database is not the shadow: {}", differences(&expected, &stored)));
        }
        self.letters()?;
        soon(|| {
            let found = self.compare(&stored);
            if found.is_err() {
                stored = self.twin.rows(self.base).0;
            }
            found
        })
    }

    /// Each refused write has a dead letter, and no other row.
    fn letters(&mut self) -> Result<(), String> {
        let found = self.twin.letters(self.base);
        let lacking = self.refused.iter().filter(|(row, _)| !found.contains_key(row));
        let lacking: Vec<String> =
            lacking.map(|(row, why)| format!("{} {}: {why:.150}", TABLES[row.0].name, row.1)).collect();
        let buried = found.iter().filter(|(row, _)| !self.refused.contains_key(row));
        let buried: Vec<String> =
            buried.map(|(row, why)| format!("{} {}: {why}", TABLES[row.0].name, row.1)).collect();
        match (lacking.is_empty(), buried.is_empty()) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("refused without a dead letter: {}", lacking.join("; "))),
            (_, false) => Err(format!("a dead letter for what the database accepts: {}", buried.join("; "))),
        }
    }

    /// What is wrong with the GETs of all rows that are there or were written.
    fn compare(&self, stored: &Rows) -> Result<(), String> {
        let way = self.site.way;
        let is_shown = |row: &&(usize, i64)| {
            // What others insert is not in a memory that does not follow.
            TABLES[row.0].is_hot(way) && (way != Way::Redis || self.touched.contains(row))
        };
        let rows: BTreeSet<_> = stored.keys().chain(&self.touched).filter(is_shown).collect();
        let target = |row: &(usize, i64)| format!("/{}/{}", TABLES[row.0].name, row.1);
        let mut wrong = Vec::new();
        for (row, answer) in rows.iter().zip(self.get_all(rows.iter().map(|row| target(row)))?) {
            let expected = stored.get(row);
            let is_same = match (answer.status, expected) {
                (404, None) => true,
                (200, Some(expected)) => {
                    is_same_row(answer.text(), expected, |column| TABLES[row.0].shows(way, column))
                }
                _ => false,
            };
            if !is_same {
                wrong.push(format!("{} is {expected:?} and served is {}", target(row), brief(&answer)));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// The answers to these requests, which are sent together.
    fn get_all(&self, targets: impl Iterator<Item = String>) -> Result<Vec<Answer>, String> {
        let requests: Vec<Vec<u8>> = targets.map(|target| request_bytes("GET", &target, &[], None)).collect();
        let mut client = self.server().client();
        let mut all = || {
            client.send(&requests.concat())?;
            requests.iter().map(|_| client.receive(false)).collect::<io::Result<Vec<Answer>>>()
        };
        all().map_err(|error| format!("a GET: {error}"))
    }

    fn kill(&mut self) -> Result<(), String> {
        self.note("kill -9");
        self.kill_it();
        self.server = Some(self.site.serve()?);
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::KillAfterCheckpoint => {
                self.note("checkpoint");
                self.server().admin("POST", "/checkpoint");
                self.step("kill after a checkpoint");
                self.kill()
            }
            Event::Kill => {
                self.step("kill");
                self.kill()
            }
            Event::KillDuringStrict => self.kill_during_strict(),
            Event::Lapse => self.lapse(),
            Event::Cut | Event::CutDuringStrict if !self.site.way.is_postgres() => Ok(()),
            Event::Cut => {
                self.note("connections are cut");
                self.step("cut");
                self.twin.cut();
                Ok(())
            }
            Event::CutDuringStrict => self.cut_during_strict(),
            Event::KillRedis => {
                self.note("the Redis is killed");
                self.step("kill of Redis");
                self.restart_redis()
            }
            Event::KillRedisDuringWrite => self.kill_redis_during_write(),
        }
    }

    /// Others' statement or DDL when everything is settled; how to take it back.
    fn interrupt(&mut self) -> Result<Option<&'static str>, String> {
        self.settle()?;
        let back = if self.random.random_bool(0.4) {
            let (forth, back) = ddl_of_others(self.site.way, &mut self.random);
            self.step("others' DDL");
            self.others(forth);
            Some(back)
        } else {
            let sql = of_others(self.site.way, self.base, &mut self.random);
            self.step("others' statement");
            self.others(&sql);
            None
        };
        self.settle()?;
        Ok(back)
    }

    /// Rows to begin with: of others, or of a client.
    fn begin(&mut self) -> Result<(), String> {
        let is_of_client = self.random.random_bool(0.5) || self.site.way == Way::Redis;
        for write in Write::first(self.site.way, self.base, &mut self.random) {
            if is_of_client {
                self.send(write)?;
            } else {
                self.others(&write.sql);
            }
        }
        if is_of_client { Ok(()) } else { self.settle() }
    }

    fn all(&mut self) -> Result<(), String> {
        self.begin()?;
        let writes = self.random.random_range(10..40);
        let is_strict = self.site.way != Way::Redis && self.random.random_bool(0.3);
        let is_held = !is_strict && self.random.random_bool(0.4);
        let event =
            Event::of(self.site.way, self.seed).map(|event| (self.random.random_range(0..writes), event));
        if is_held {
            self.note("the drain is paused");
            self.step("drain paused");
            self.server().pause_drain(true);
        }
        let mut back = None;
        for at in 0..writes {
            let of_database = is_strict && self.random.random_bool(0.4);
            self.write(of_database)?;
            match event {
                Some((when, event)) if when == at => self.happen(event)?,
                _ => {}
            }
            match self.random.random_range(0..100) {
                0..10 => {
                    let sql = of_others_apart(self.base, &mut self.random);
                    self.step("others' statement apart");
                    self.others(&sql);
                }
                10..13 if back.is_none() && !is_held => back = self.interrupt()?,
                _ => {}
            }
        }
        self.settle()?;
        if let Some(back) = back {
            self.others(back);
            self.settle()?;
        }
        Ok(())
    }
}

fn is_same_row(ours: &str, theirs: &str, is_shown: impl Fn(&str) -> bool) -> bool {
    let (Ok(ours), Ok(theirs)) = (members(ours), members(theirs)) else { return false };
    theirs.iter().filter(|(name, _)| is_shown(name)).all(|(name, value)| {
        let parsed = |raw: &str| serde_json::from_str::<serde_json::Value>(raw).ok();
        ours.get(name).is_some_and(|found| parsed(found.get()) == parsed(value.get()))
    })
}

fn differences(expected: &Rows, found: &Rows) -> String {
    let keys: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let differs = keys.into_iter().filter(|key| expected.get(key) != found.get(key));
    let one = |key: &(usize, i64)| {
        format!("{} {}: {:?} should be {:?}", TABLES[key.0].name, key.1, found.get(key), expected.get(key))
    };
    differs.map(one).collect::<Vec<_>>().join("; ")
}
