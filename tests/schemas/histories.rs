//! Random histories: clients' writes to tables with every referential action and with triggers that
//! change, add, skip and delete rows; writes and DDL of others; kills. Beside them stands a shadow of
//! the tables, in which the acknowledged writes are executed one after the other, with others'
//! statements where they were committed. At the end of each history
//!
//! - the database is equal to the shadow
//! - each acknowledged write that the shadow refuses has a dead letter, and no other row has one
//! - every GET is equal to the database, within five seconds
//!
//! A few histories for each way of following in a normal run; FOREBAY_HISTORY_ROUNDS for more (`make
//! histories ROUNDS=20000`). A failure prints its seed, and FOREBAY_HISTORY_SEED repeats from there.

use crate::history::{
    DDL_OF_POSTGRES, DDL_OF_SQLITE, TABLES, Write, config, of_others, of_others_apart, schema,
};
use crate::json::members;
use crate::report::Report;
use crate::site::{Site, Way, brief, soon};
use forebay_tests::Server;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::Instant;

/// Histories of each way in a normal run.
const ROUNDS: u64 = 25;
/// Histories that share a database: each has rows of its own.
const OF_A_SITE: u64 = 100;
/// Between the keys of two histories.
const STEP: i64 = 100;

/// A second database, or a second schema of the same.
enum Shadow {
    Postgres(postgres::Client),
    Sqlite(rusqlite::Connection),
}

impl Shadow {
    fn new(site: &Site) -> Shadow {
        if site.way.is_postgres() {
            let mut client = site.postgres();
            let sql = format!("CREATE SCHEMA shadow; SET search_path = shadow; {}", schema(true));
            client.batch_execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            return Shadow::Postgres(client);
        }
        let connection = rusqlite::Connection::open(site.folder.path().join("shadow.db")).expect("a file");
        let sql = format!(
            "PRAGMA foreign_keys = on; PRAGMA synchronous = off; PRAGMA journal_mode = wal; {}",
            schema(false)
        );
        connection.execute_batch(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        Shadow::Sqlite(connection)
    }

    fn has(&mut self, table: &str, id: i64) -> bool {
        let sql = format!("SELECT count(*) FROM {table} WHERE id = {id}");
        let count: i64 = match self {
            Shadow::Postgres(client) => client.query_one(&sql, &[]).expect("a count").get(0),
            Shadow::Sqlite(connection) => connection.query_row(&sql, [], |row| row.get(0)).expect("a count"),
        };
        count > 0
    }

    /// Executes a statement in a transaction of its own; how many rows it changed.
    fn run(&mut self, sql: &str) -> Result<u64, String> {
        match self {
            Shadow::Postgres(client) => client.execute(sql, &[]).map_err(|error| format!("{error:?}")),
            Shadow::Sqlite(connection) => {
                connection.execute(sql, []).map(|rows| rows as u64).map_err(|error| error.to_string())
            }
        }
    }
}

/// Rows by table and key, each as JSON of its configured columns.
type Rows = BTreeMap<(usize, i64), String>;

struct Round<'a> {
    site: &'a Site,
    server: Option<Server>,
    shadow: &'a mut Shadow,
    base: i64,
    random: StdRng,
    /// Rows with an acknowledged write that the shadow refused.
    refused: BTreeMap<(usize, i64), String>,
    /// Those of them that may not be in the database yet.
    open: BTreeSet<(usize, i64)>,
    /// Rows that were written.
    touched: BTreeSet<(usize, i64)>,
    /// What happened, for a failure.
    story: Vec<String>,
}

impl Round<'_> {
    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn note(&mut self, what: impl Into<String>) {
        self.story.push(what.into());
    }

    /// One request; an acknowledged write is one for the shadow.
    fn write(&mut self, is_strict: bool) -> Result<(), String> {
        let write = Write::draw(self.base, is_strict, &mut self.random);
        // What is refused and what comes after it may be merged, or together be accepted: both are
        // right, and the shadow knows only one.
        let row = (write.table, write.id);
        if self.open.contains(&row) || write.makes_a_parent() && !self.open.is_empty() {
            self.settle()?;
        }
        self.send(write)
    }

    fn send(&mut self, write: Write) -> Result<(), String> {
        let mut client = self.server().client();
        let answer = client.ask(write.method, &write.target, write.body.as_deref());
        let body = write.body.as_deref().unwrap_or_default();
        self.story.push(format!("{} {} {body} -> {}", write.method, write.target, answer.status));
        self.touched.insert((write.table, write.id));
        match answer.status {
            200..300 => self.replay(&write),
            400..500 => {}
            // Nothing was written, and the client may try again.
            503 if answer.header("retry-after").is_some() => {}
            _ => return Err(format!("{} {}: {}", write.method, write.target, brief(&answer))),
        }
        Ok(())
    }

    fn others(&mut self, sql: &str) {
        self.note(format!("others: {sql}"));
        // What the database refuses of others is refused in the shadow as well.
        let _ = self.site.run(sql);
        let _ = self.shadow.run(sql);
    }

    /// Executes in the shadow what was acknowledged.
    fn replay(&mut self, write: &Write) {
        let table = TABLES[write.table].name;
        let refusal = match self.shadow.run(&write.sql) {
            Ok(0) if self.shadow.has(table, write.id) || write.is_insert() => "skipped".to_owned(),
            Ok(_) => return,
            Err(error) => error,
        };
        self.story.push(format!("the shadow refuses {}: {refusal:.200}", write.sql));
        self.refused.insert((write.table, write.id), refusal);
        self.open.insert((write.table, write.id));
    }

    /// Everything acknowledged is in the database, and memory shows it.
    fn settle(&mut self) -> Result<(), String> {
        self.server().drain();
        self.open.clear();
        self.note("drained");
        let (expected, found) = (self.rows_of_shadow(), self.rows());
        if expected != found {
            return Err(format!("the database is not the shadow: {}", differences(&expected, &found)));
        }
        self.letters()?;
        soon(|| self.compare(&self.rows()))
    }

    fn sql_of_rows(&self, prefix: &str) -> String {
        let (low, high) = (self.base, self.base + STEP);
        let one = |(at, table): (usize, &crate::history::Table)| {
            let pairs: Vec<String> =
                table.columns.iter().map(|(name, _)| format!("'{name}', {name}")).collect();
            let function = if self.site.way.is_postgres() { "json_build_object" } else { "json_object" };
            format!(
                "SELECT {at}, id, CAST({function}('id', id, {}) AS text) FROM {prefix}{} WHERE id >= {low} AND id < {high} OR id = 0",
                pairs.join(", "),
                table.name
            )
        };
        TABLES.iter().enumerate().map(one).collect::<Vec<_>>().join(" UNION ALL ")
    }

    fn rows(&self) -> Rows {
        read_rows(self.site.archive().rows(&self.sql_of_rows("")))
    }

    fn rows_of_shadow(&self) -> Rows {
        match &*self.shadow {
            Shadow::Postgres(_) => read_rows(self.site.archive().rows(&self.sql_of_rows("shadow."))),
            Shadow::Sqlite(connection) => {
                let mut statement = connection.prepare(&self.sql_of_rows("")).expect("a query");
                let rows = statement.query_map([], |row| {
                    Ok(((row.get::<_, i64>(0)? as usize, row.get(1)?), row.get::<_, String>(2)?))
                });
                rows.and_then(Iterator::collect::<Result<Rows, _>>).expect("rows")
            }
        }
    }

    /// Each refused write has a dead letter, and no other row.
    fn letters(&mut self) -> Result<(), String> {
        let there = if self.site.way.is_postgres() {
            "SELECT 1 FROM pg_class WHERE relname = 'forebay_dead_letter'"
        } else {
            "SELECT 1 FROM sqlite_schema WHERE name = 'forebay_dead_letter'"
        };
        let archive = self.site.archive();
        let mut found: BTreeMap<(usize, i64), String> = BTreeMap::new();
        if !archive.rows(there).is_empty() {
            for row in archive.rows("SELECT table_name, row, reason FROM forebay_dead_letter") {
                let text = |at: usize| row[at].clone().unwrap_or_default();
                let table = TABLES.iter().position(|table| table.name == text(0)).expect("one of the tables");
                let row: serde_json::Value = serde_json::from_str(&text(1)).unwrap_or_default();
                let id = row["id"].as_i64().unwrap_or_default();
                if (self.base..self.base + STEP).contains(&id) {
                    found.insert((table, id), text(2));
                }
            }
        }
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
        let mut client = self.server().client();
        let mut wrong = Vec::new();
        for row in stored.keys().chain(&self.touched).collect::<BTreeSet<_>>() {
            let (name, id) = (TABLES[row.0].name, row.1);
            let answer = client.get(&format!("/{name}/{id}"));
            let expected = stored.get(row);
            let is_same = match (answer.status, expected) {
                (404, None) => true,
                (200, Some(expected)) => is_same_row(answer.text(), expected),
                _ => false,
            };
            if !is_same {
                wrong.push(format!("{name} {id} is {expected:?} and served is {}", brief(&answer)));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    fn restart(&mut self) -> Result<(), String> {
        let server = self.server.take().expect("it runs");
        if self.random.random_bool(0.3) {
            self.story.push("checkpoint".into());
            server.admin("POST", "/checkpoint");
        }
        self.note("kill -9");
        server.kill();
        self.server = Some(self.site.serve()?);
        Ok(())
    }

    /// Others' statement or DDL when everything is settled; how to take it back.
    fn interrupt(&mut self) -> Result<Option<&'static str>, String> {
        self.settle()?;
        let ddl: &[(&str, &str)] =
            if self.site.way.is_postgres() { &DDL_OF_POSTGRES } else { &DDL_OF_SQLITE };
        let back = if self.random.random_bool(0.4) {
            let (forth, back) = ddl[self.random.random_range(0..ddl.len())];
            self.others(forth);
            Some(back)
        } else {
            let sql = of_others(self.base, &mut self.random);
            self.others(&sql);
            None
        };
        self.settle()?;
        Ok(back)
    }

    /// Rows to begin with: of others, or of a client.
    fn begin(&mut self) -> Result<(), String> {
        let is_of_client = self.random.random_bool(0.5);
        for write in Write::first(self.base, &mut self.random) {
            if is_of_client {
                self.send(write)?;
            } else {
                self.others(&write.sql);
            }
        }
        if is_of_client { Ok(()) } else { self.settle() }
    }

    fn steps(&mut self) -> Result<(), String> {
        self.begin()?;
        let writes = self.random.random_range(10..40);
        let is_strict = self.random.random_bool(0.3);
        let is_held = !is_strict && self.random.random_bool(0.4);
        if is_held {
            self.note("the drain is paused");
            self.server().pause_drain(true);
        }
        let mut back = None;
        for _ in 0..writes {
            let is_strict = is_strict && self.random.random_bool(0.4);
            self.write(is_strict)?;
            match self.random.random_range(0..100) {
                0..10 => {
                    let sql = of_others_apart(self.base, &mut self.random);
                    self.others(&sql);
                }
                10..13 if back.is_none() && !is_held => back = self.interrupt()?,
                13 if self.random.random_bool(0.3) => self.restart()?,
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

fn read_rows(found: Vec<Vec<Option<String>>>) -> Rows {
    let number =
        |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<i64>().ok()).expect("a number");
    found
        .iter()
        .map(|row| ((number(&row[0]) as usize, number(&row[1])), row[2].clone().expect("a row")))
        .collect()
}

fn is_same_row(ours: &str, theirs: &str) -> bool {
    let (Ok(ours), Ok(theirs)) = (members(ours), members(theirs)) else { return false };
    theirs.iter().all(|(name, value)| {
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

/// Runs a history; its server goes on, unless it failed.
fn round(site: &Site, shadow: &mut Shadow, server: Server, number: i64, seed: u64) -> Result<Server, String> {
    let mut round = Round {
        site,
        server: Some(server),
        shadow,
        base: number * STEP,
        random: StdRng::seed_from_u64(seed),
        refused: BTreeMap::new(),
        open: BTreeSet::new(),
        touched: BTreeSet::new(),
        story: Vec::new(),
    };
    match round.steps() {
        Ok(()) => Ok(round.server.take().expect("it runs")),
        Err(what) => {
            let output = round.server.as_ref().map(Server::output).unwrap_or_default();
            let lines: Vec<&str> = output.lines().rev().take(8).collect();
            Err(format!("{what}\n  {}\n  it printed, the last first: {lines:#?}", round.story.join("\n  ")))
        }
    }
}

/// A number from the environment.
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

fn histories(way: Way, test: &str) {
    let began = Instant::now();
    let given = from_environment("FOREBAY_HISTORY_SEED");
    let first = given.unwrap_or_else(|| rand::rng().next_u64() >> 24);
    let rounds =
        from_environment("FOREBAY_HISTORY_ROUNDS").unwrap_or(if given.is_some() { 1 } else { ROUNDS });
    let (mut failures, mut done) = (Vec::new(), 0);
    while done < rounds {
        let site = Site::new(way, &schema(way.is_postgres()));
        std::fs::write(&site.config, config()).expect("a file can be written");
        let mut shadow = Shadow::new(&site);
        let mut server = site.serve().unwrap_or_else(|output| panic!("{output}"));
        for number in 1..=OF_A_SITE.min(rounds - done) {
            let seed = first + done;
            done += 1;
            match round(&site, &mut shadow, server, number as i64, seed) {
                Ok(running) => server = running,
                Err(failure) => {
                    println!(
                        "{} {seed}: FOREBAY_HISTORY_SEED={seed} cargo test --workspace --test schemas -- --nocapture {test}\n  {failure}",
                        way.name()
                    );
                    failures.push(seed);
                    break;
                }
            }
        }
    }
    println!(
        "{done} histories beside {} in {:.0} s, {} failed",
        way.name(),
        began.elapsed().as_secs_f64(),
        failures.len()
    );
    prove(way, first, rounds, failures.len());
    let mut report = Report::new("histories", way);
    failures.iter().for_each(|seed| report.add(&seed.to_string(), "the history is not explained"));
    report.finish();
}

/// Appends a line to the file of proofs that the environment names, after its date and commit.
fn prove(way: Way, first: u64, rounds: u64, failures: usize) {
    let Some((file, date, commit)) = std::env::var("FOREBAY_PROOF").ok().and_then(|text| {
        let mut parts = text.split('|').map(str::to_owned);
        Some((parts.next()?, parts.next()?, parts.next()?))
    }) else {
        return;
    };
    let mut file = std::fs::OpenOptions::new().append(true).open(file).expect("the file of proofs");
    let last = first + rounds - 1;
    let line = format!("{date}\t{commit}\thistories\t{first}-{last}\t{rounds}\t{failures}\t{}\n", way.name());
    file.write_all(line.as_bytes()).expect("a line");
}

#[test]
fn histories_are_explained_beside_logical_decoding() {
    histories(Way::Logical, "histories_are_explained_beside_logical");
}

#[test]
fn histories_are_explained_beside_triggers() {
    histories(Way::Triggers, "histories_are_explained_beside_triggers");
}

#[test]
fn histories_are_explained_of_sqlite() {
    histories(Way::Sqlite, "histories_are_explained_of_sqlite");
}
