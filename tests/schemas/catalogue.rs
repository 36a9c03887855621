//! Two catalogues of what real schemas hold, served as `forebay init` drafts it: every generated route
//! shows what the database has, and every accepted row is in the database as it was answered.

use crate::json::{Members, members, path};
use crate::judge::{Rows, key_of, rows, tables};
use crate::report::Report;
use crate::site::{Site, Way, ask, brief, printed, soon};
use forebay_tests::Server;
use serde_json::Value;
use std::collections::BTreeMap;

const OF_POSTGRES: &str = include_str!("postgres.sql");
const OF_SQLITE: &str = include_str!("sqlite.sql");

/// What the lines for the test say: see postgres.sql.
struct Script {
    left_out: BTreeMap<&'static str, &'static str>,
    /// Table, key and column of rows that memory cannot show.
    unfit: Vec<[&'static str; 3]>,
    /// Expectation, table, row.
    requests: Vec<(&'static str, &'static str, &'static str)>,
    others: Vec<&'static str>,
}

impl Script {
    fn read(text: &'static str, way: Way) -> Script {
        let mut script =
            Script { left_out: BTreeMap::new(), unfit: Vec::new(), requests: Vec::new(), others: Vec::new() };
        for line in text.lines() {
            if let Some((table, reason)) = line.strip_prefix("--? ").and_then(|line| line.split_once(": ")) {
                let (table, only) = table.split_once('@').unwrap_or((table, way.name()));
                if only == way.name() {
                    script.left_out.insert(table, reason);
                }
            } else if let Some(row) = line.strip_prefix("--x ") {
                let mut parts = row.split(' ');
                script.unfit.push(std::array::from_fn(|_| parts.next().expect("three words")));
            } else if let Some(request) = line.strip_prefix("--> ") {
                let mut parts = request.splitn(3, ' ');
                let mut next = || parts.next().unwrap_or_else(|| panic!("three parts: {line}"));
                script.requests.push((next(), next(), next()));
            } else if let Some(sql) = line.strip_prefix("--! ") {
                script.others.push(sql);
            }
        }
        script
    }
}

/// A row that was accepted.
struct Accepted {
    expectation: &'static str,
    table: &'static str,
    row: &'static str,
    answer: Members,
}

struct Run {
    site: Site,
    script: Script,
    report: Report,
    /// The served tables and their key columns.
    served: BTreeMap<String, String>,
    /// What `check` said.
    said: String,
}

impl Run {
    /// `forebay init`: the config, and what it leaves out.
    fn init(&mut self) {
        let (url, path) = (self.site.url_of_server(), self.site.config.display().to_string());
        let url = if self.site.way.is_postgres() {
            url
        } else {
            format!("sqlite:{}", self.site.folder.database().display())
        };
        let ended = self.site.command("init", &[&url, "-o", &path]);
        assert!(ended.status.success(), "{}", printed(&ended));
        let config = std::fs::read_to_string(&self.site.config).expect("it wrote a file");
        for line in config.lines() {
            let route = line.strip_prefix("route = \"GET /").and_then(|route| route.split_once("/{"));
            if let Some((table, key)) = route {
                self.served.insert(table.to_owned(), key.trim_end_matches("}\"").to_owned());
            }
        }
        for table in tables(&self.site) {
            let reason = config.lines().find(|line| line.starts_with(&format!("# {table}: not in memory: ")));
            match (self.script.left_out.get(table.as_str()), reason) {
                (Some(expected), Some(reason)) if reason.contains(expected) => {}
                (Some(&"in silence"), None) if !self.served.contains_key(&table) => {}
                (Some(expected), found) => {
                    self.report.add(&table, format!("init should leave it out with {expected:?}: {found:?}"));
                    self.leave_out(&table);
                }
                (None, Some(reason)) if !reason.contains("is a view") => {
                    self.report.add(&table, format!("init leaves it out: {reason}"));
                }
                (None, _) => {}
            }
        }
    }

    /// Takes a table out of the config.
    fn leave_out(&mut self, table: &str) {
        let config = std::fs::read_to_string(&self.site.config).expect("the file is there");
        let mut is_kept = true;
        let all = tables(&self.site);
        let kept = config.lines().filter(|line| {
            if let Some(of) = all.iter().find(|name| line.starts_with(&format!("# {name}: "))) {
                is_kept = of != table;
            }
            is_kept
        });
        let kept: Vec<&str> = kept.collect();
        std::fs::write(&self.site.config, kept.join("\n")).expect("a file can be written");
        self.served.remove(table);
    }

    /// `forebay check`, whose warnings announce what only the database judges.
    fn check(&mut self) {
        let ended = self.site.start().run("check", &[]);
        self.said = printed(&ended);
        if !ended.status.success() {
            self.report.add("check", &self.said);
        }
    }

    /// Serves what can be served: a table that refuses the start of all is a deviation, and left out.
    fn serve(&mut self, when: &str) -> Server {
        loop {
            let output = match self.site.serve() {
                Ok(server) => return server,
                Err(output) => output,
            };
            let last = output.lines().last().unwrap_or_default();
            let names = |name: &&String| {
                [
                    format!("table {name} "),
                    format!("table {name}:"),
                    format!("loading {name}:"),
                    format!(".\"{name}\""),
                ]
                .iter()
                .any(|phrase| last.contains(phrase))
            };
            let Some(table) = self.served.keys().find(names).cloned() else {
                panic!("the server does not start {when}: {output}");
            };
            self.report.add(&table, format!("refuses the start {when}: {last}"));
            self.leave_out(&table);
        }
    }

    /// Compares every row of every table with its GET.
    fn compare(&mut self, server: &Server, when: &str) {
        let mut open: Vec<(&String, &String, String)> =
            self.served.iter().map(|(table, key)| (table, key, String::new())).collect();
        // What differs is asked for again for a while.
        let _ = soon(|| {
            open.retain_mut(|(table, key, wrong)| {
                match compare_but(&self.site, server, (table, key), &self.script.unfit) {
                    Ok(()) => false,
                    Err(what) => {
                        *wrong = what;
                        true
                    }
                }
            });
            if open.is_empty() { Ok(()) } else { Err(String::new()) }
        });
        for (table, _, wrong) in open {
            self.report.add(table, format!("{when}: {wrong}"));
        }
    }

    /// Sends the rows, and returns those that were accepted.
    fn send(&mut self, server: &Server) -> Vec<Accepted> {
        let mut client = server.client();
        let mut accepted = Vec::new();
        for (expectation, table, row) in std::mem::take(&mut self.script.requests) {
            let Some(key) = self.served.get(table) else { continue };
            let answer = ask(&mut client, "POST", &format!("/{table}"), Some(row));
            let is_refused = (400..500).contains(&answer.status);
            if is_refused && matches!(expectation, "4xx" | "any" | "dead") {
                continue;
            }
            if answer.status != 201 || expectation == "4xx" {
                self.report.add(table, format!("POST {row} should be {expectation}: {}", brief(&answer)));
            }
            if answer.status != 201 {
                continue;
            }
            let answer = members(answer.text()).expect("an object");
            let place = path(&key_of(answer[key].get()));
            let read = ask(&mut client, "GET", &format!("/{table}/{place}"), None);
            let is_same = members(read.text()).is_ok_and(|read| {
                answer
                    .iter()
                    .all(|(name, value)| read.get(name).is_some_and(|found| found.get() == value.get()))
            });
            if expectation != "201~" && expectation != "dead" && (read.status != 200 || !is_same) {
                self.report.add(table, format!("POST {row} was answered, and then: {}", brief(&read)));
            }
            accepted.push(Accepted { expectation, table, row, answer });
        }
        accepted
    }

    /// Compares what was answered with what the database has once it is drained.
    fn judge(&mut self, accepted: &[Accepted]) {
        let letters = self.dead_letters();
        for Accepted { expectation, table, row, answer } in accepted {
            let key = &self.served[*table];
            let stored = rows(&self.site, table, key);
            let place = key_of(answer[key].get());
            let is_dead = letters.iter().any(|(of, _)| of == table) && !stored.by_key.contains_key(&place);
            let announced = self.said.lines().any(|line| line.starts_with(&format!("{table}: ")));
            match (*expectation, is_dead) {
                ("dead", true) if announced => {}
                ("dead", true) => {
                    self.report.add(table, format!("a dead letter that check did not announce: {row}"))
                }
                ("dead", false) => {
                    self.report.add(table, format!("it should be refused, and is stored: {row}"))
                }
                (_, true) => {
                    let reasons: Vec<_> = letters.iter().filter(|(of, _)| of == table).collect();
                    self.report.add(table, format!("accepted, and then a dead letter: {row}: {reasons:?}"));
                }
                ("201~", false) if stored.by_key.contains_key(&place) => {}
                (_, false) => {
                    let found = stored.compare(&place, answer);
                    self.report.check(table, found.map_err(|what| format!("{row} was answered: {what}")));
                }
            }
        }
    }

    fn dead_letters(&self) -> Vec<(String, String)> {
        dead_letters(&self.site)
    }

    /// Rows that another row has replaced are found when rows are counted, a second later.
    fn verify(&mut self, server: &Server, when: &str) {
        let mut wrong = Vec::new();
        let _ = soon(|| {
            let said = server.admin("POST", "/verify").expect(200);
            wrong = said["checks"]
                .as_array()
                .expect("checks")
                .iter()
                .filter(|check| is_wrong(check))
                .cloned()
                .collect();
            if wrong.is_empty() { Ok(()) } else { Err(String::new()) }
        });
        for check in wrong {
            self.report.add(check["table"].as_str().expect("a table"), format!("{when}: verify: {check}"));
        }
    }
}

/// Whether memory and database differ; dead letters are judged one by one.
fn is_wrong(check: &Value) -> bool {
    let faults = ["missing_in_database", "missing_in_memory", "different"];
    faults.iter().any(|fault| check[fault] != 0) || !check["failed"].is_null()
}

/// Table and reason of each dead letter.
pub fn dead_letters(site: &Site) -> Vec<(String, String)> {
    let there = if site.way.is_postgres() {
        "SELECT 1 FROM pg_class WHERE relname = 'forebay_dead_letter'"
    } else {
        "SELECT 1 FROM sqlite_schema WHERE name = 'forebay_dead_letter'"
    };
    let archive = site.archive();
    if archive.rows(there).is_empty() {
        return Vec::new();
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let rows = archive.rows("SELECT table_name, reason FROM forebay_dead_letter ORDER BY id");
    rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect()
}

/// What is wrong with the GETs of a table's rows. A key that no path can hold is not asked for.
pub fn compare_table(site: &Site, server: &Server, table: &str, key: &str) -> Result<(), String> {
    compare_but(site, server, (table, key), &[])
}

/// As [`compare_table`]; of some rows the answer names table, key and column, which cannot be shown.
fn compare_but(
    site: &Site,
    server: &Server,
    (table, key): (&str, &str),
    unfit: &[[&str; 3]],
) -> Result<(), String> {
    let stored: Rows = rows(site, table, key);
    let mut client = server.client();
    let mut wrong = Vec::new();
    for place in stored.by_key.keys().filter(|key| !key.is_empty() && !key.contains(['/', '\\'])) {
        let answer = ask(&mut client, "GET", &format!("/{table}/{}", path(place)), None);
        if let Some([_, _, column]) = unfit.iter().find(|[of, row, _]| of == &table && row == place) {
            let says = format!("table {table}, row {place}: column {column} ");
            if answer.status != 500 || !answer.text().contains(&says) {
                wrong.push(format!(
                    "row {place} should say that {column} cannot be shown: {}",
                    brief(&answer)
                ));
            }
            continue;
        }
        if answer.status != 200 {
            wrong.push(format!("row {place}: {}", brief(&answer)));
            continue;
        }
        wrong.extend(members(answer.text()).and_then(|ours| stored.compare(place, &ours)).err());
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(" | ")) }
}

fn every_route_of(way: Way) {
    let text = if way.is_postgres() { OF_POSTGRES } else { OF_SQLITE };
    let mut run = Run {
        site: Site::new(way, text),
        script: Script::read(text, way),
        report: Report::new("catalogue", way),
        served: BTreeMap::new(),
        said: String::new(),
    };
    run.init();
    run.check();
    let server = run.serve("at first");
    run.compare(&server, "as loaded");
    let accepted = run.send(&server);
    server.drain();
    run.judge(&accepted);
    run.compare(&server, "after the drain");
    run.verify(&server, "after the drain");
    for sql in run.script.others.clone() {
        run.report.check("others", run.site.run(sql));
    }
    run.compare(&server, "after others' writes");
    run.verify(&server, "after others' writes");
    // A table that is being read again is in no checkpoint.
    let written = soon(|| match server.admin("POST", "/checkpoint") {
        written if written.status == 200 => Ok(()),
        refused => Err(brief(&refused)),
    });
    run.report.check("checkpoint", written);
    drop(server.stop());
    let server = run.serve("from a checkpoint");
    run.compare(&server, "from a checkpoint");
    run.verify(&server, "from a checkpoint");
    run.report.finish();
}

#[test]
fn every_route_of_a_catalogue_beside_logical_decoding() {
    every_route_of(Way::Logical);
}

#[test]
fn every_route_of_a_catalogue_beside_triggers() {
    every_route_of(Way::Triggers);
}

#[test]
fn every_route_of_a_catalogue_of_sqlite() {
    every_route_of(Way::Sqlite);
}
