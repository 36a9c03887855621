//! Every type and its edge values, by every way that a value can take: loaded, written by others, posted
//! and drained, posted and replayed, read from a checkpoint; by a hot table and by `sql`. Each time it
//! is the database's own value, or it is refused before the answer, or this row alone says that it
//! cannot be shown.

use crate::catalogue::dead_letters;
use crate::edges::{self, Edges};
use crate::json::{Members, canonical, members};
use crate::judge::{Rows, rows};
use crate::report::Report;
use crate::site::{FRESH, Site, Way, brief, printed};
use forebay_tests::{Client, Server};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Ids by the way that a value takes; the place of the value in its list is added.
const LOADED: usize = 1;
const FOLLOWED: usize = 1_000;
const POSTED: usize = 2_000;
const POSTED_AS_TEXT: usize = 3_000;
const REFUSED: usize = 4_000;
const REPLAYED: usize = 5_000;
const PATCHED: usize = 6_000;

/// A row that was accepted: the table's place, its id, the place of its value among the accepted ones of
/// the type, what was sent, and the answer.
struct Accepted {
    table: usize,
    id: usize,
    source: Option<usize>,
    sent: String,
    answer: Members,
}

#[derive(Default, Debug)]
struct Counts {
    equal: usize,
    unfit: usize,
    refused: usize,
}

struct Run {
    site: Site,
    report: Report,
    types: &'static [Edges],
    /// The tables that are served.
    served: BTreeSet<usize>,
    /// Those of them whose value `sql` gives as a text only.
    cast: BTreeSet<usize>,
    counts: Counts,
    said: String,
    /// Rows that deviated: said once.
    deviating: BTreeSet<(usize, String)>,
}

fn name(table: usize) -> String {
    format!("v_{table}")
}

impl Run {
    fn new(way: Way) -> Run {
        let types = if way.is_postgres() { edges::OF_POSTGRES } else { edges::OF_SQLITE };
        let mut sql = if way.is_postgres() { edges::SETUP.to_owned() } else { String::new() };
        for (table, (ty, values, _)) in types.iter().enumerate() {
            let name = name(table);
            let key = if way.is_postgres() { "bigint" } else { "INTEGER" };
            sql += &format!("CREATE TABLE {name} (id {key} PRIMARY KEY, v {ty});\n");
            sql += &inserts(table, values, LOADED);
        }
        let report = Report::new("values", way);
        let (site, served) = (Site::new(way, &sql), (0..types.len()).collect());
        Run {
            site,
            report,
            types,
            served,
            cast: BTreeSet::new(),
            counts: Counts::default(),
            said: String::new(),
            deviating: BTreeSet::new(),
        }
    }

    fn case(&self, table: usize, id: usize) -> String {
        let (ty, values, refused) = &self.types[table];
        let (kind, list) = match id {
            FOLLOWED..POSTED => ("followed", values),
            POSTED..POSTED_AS_TEXT => ("posted", values),
            POSTED_AS_TEXT..REFUSED => ("posted as text", values),
            REFUSED..REPLAYED => ("posted", refused),
            REPLAYED..PATCHED => ("replayed", values),
            PATCHED.. => ("patched", refused),
            _ => ("loaded", values),
        };
        let value = list.get(id % 1_000 - 1).copied().unwrap_or_default();
        format!("{ty} {value} {kind}")
    }

    fn write_config(&self) {
        let mut config = String::new();
        for table in &self.served {
            let name = name(*table);
            // A cast to text writes the length of an inet's netmask too, unlike the type itself.
            let cast = "CASE WHEN v IS DISTINCT FROM NULL THEN format('%s', v) END AS v";
            let value = if self.cast.contains(table) { cast } else { "v" };
            config += &format!(
                "[table.{name}]\n\
                 [[endpoint]]\nroute = \"GET /{name}/{{id}}\"\nget = \"{name}\"\n\
                 [[endpoint]]\nroute = \"GET /sql/{name}/{{id}}\"\nsql = \"SELECT id, {value} FROM {name} WHERE id = $id\"\n\
                 [[endpoint]]\nroute = \"POST /{name}\"\ninsert = \"{name}\"\nparams = {{ v = \"?\" }}\n\
                 values = {{ id = \"$id\", v = \"$v\" }}\nreply = {{ status = 201 }}\n\
                 [[endpoint]]\nroute = \"PATCH /{name}/{{id}}\"\nupdate = \"{name}\"\nparams = {{ v = \"?\" }}\n\
                 values = {{ v = \"$v\" }}\n"
            );
        }
        std::fs::write(&self.site.config, config).expect("a file can be written");
    }

    /// Serves the tables that can be served; the others are deviations.
    fn serve(&mut self, when: &str) -> Server {
        loop {
            self.write_config();
            let output = match self.site.serve() {
                Ok(server) => return server,
                Err(output) => output,
            };
            let last = output.lines().last().unwrap_or_default().to_owned();
            let named = |table: &&usize| {
                let name = name(**table);
                let is_end = |c: char| !c.is_ascii_digit();
                last.match_indices(&name).any(|(at, _)| last[at + name.len()..].starts_with(is_end))
            };
            let Some(table) = self.served.iter().find(named).copied() else {
                panic!("the server does not start {when}: {output}");
            };
            if last.contains("is not understood; cast it, as in x::text") && self.cast.insert(table) {
                continue;
            }
            self.report.add(self.types[table].0, format!("refuses the start {when}: {last}"));
            self.served.remove(&table);
        }
    }

    /// Compares all rows with their GETs, hot and by `sql`; what differs is asked for again for a while.
    fn compare(&mut self, server: &Server, when: &str) {
        let until = Instant::now() + FRESH;
        let mut client = server.client();
        let mut open: Vec<(usize, Rows, Vec<String>)> = self
            .served
            .iter()
            .map(|table| {
                let stored = rows(&self.site, &name(*table), "id");
                let is_new = |id: &&String| !self.deviating.contains(&(*table, (*id).clone()));
                let ids = stored.by_key.keys().filter(is_new).cloned().collect();
                (*table, stored, ids)
            })
            .collect();
        loop {
            let is_last = Instant::now() > until;
            for (table, stored, ids) in &mut open {
                ids.retain(|id| {
                    let mut found = Vec::new();
                    for route in ["", "/sql"] {
                        match look(&mut client, &format!("{route}/{}/{id}", name(*table)), id, stored) {
                            Ok(true) => self.counts.equal += 1,
                            Ok(false) => self.counts.unfit += 1,
                            Err(what) => found.push(format!("{when}{route}: {what}")),
                        }
                    }
                    if is_last && !found.is_empty() {
                        let case = self.case(*table, id.parse().expect("a number"));
                        self.report.add(&case, found.join(" | "));
                        self.deviating.insert((*table, id.clone()));
                    }
                    !found.is_empty()
                });
            }
            open.retain(|(_, _, ids)| !ids.is_empty());
            if is_last || open.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Posts a row, or patches the row that is there; what was accepted.
    fn post(&mut self, client: &mut Client, table: usize, id: usize, value: &str) -> Option<Accepted> {
        let name = name(table);
        let (answer, done) = match id {
            PATCHED.. => {
                (client.ask("PATCH", &format!("/{name}/{id}"), Some(&format!("{{\"v\":{value}}}"))), 200)
            }
            _ => (client.post_json(&format!("/{name}"), &format!("{{\"id\":{id},\"v\":{value}}}")), 201),
        };
        if (400..500).contains(&answer.status) {
            self.counts.refused += 1;
            return None;
        }
        let case = self.case(table, id);
        if answer.status != done {
            self.report.add(&case, format!("POST: {}", brief(&answer)));
            return None;
        }
        let read = client.get(&format!("/{name}/{id}"));
        if read.body != answer.body {
            self.report.add(&case, format!("POST: {}, then GET: {}", brief(&answer), brief(&read)));
        }
        let answer = members(answer.text()).expect("an object");
        Some(Accepted {
            table,
            id,
            source: (!(REFUSED..REPLAYED).contains(&id) && id < PATCHED).then_some(id % 1_000),
            sent: value.to_owned(),
            answer,
        })
    }

    /// Posts each loaded value as it is shown and as the database's text, and each refused one.
    fn post_all(&mut self, server: &Server) -> Vec<Accepted> {
        let mut client = server.client();
        let mut accepted = Vec::new();
        for table in self.served.clone() {
            let (ty, values, refused) = self.types[table];
            let stored = rows(&self.site, &name(table), "id");
            for place in 1..=values.len() {
                let cell = &stored.by_key[&place.to_string()][1];
                let shown = self.shown(&mut client, table, place).unwrap_or_else(|| cell.json().to_owned());
                accepted.extend(self.post(&mut client, table, POSTED + place, &shown));
                if let Some(text) = cell.text_json() {
                    accepted.extend(self.post(&mut client, table, POSTED_AS_TEXT + place, text));
                }
            }
            for (place, literal) in refused.iter().enumerate() {
                let value =
                    if self.site.way.is_postgres() { as_json(ty, literal) } else { (*literal).to_owned() };
                accepted.extend(self.post(&mut client, table, REFUSED + 1 + place, &value));
                accepted.extend(self.post(&mut client, table, PATCHED + 1 + place, &value));
            }
        }
        accepted
    }

    fn shown(&self, client: &mut Client, table: usize, place: usize) -> Option<String> {
        let answer = client.get(&format!("/{}/{place}", name(table)));
        let row = members(std::str::from_utf8(&answer.body).ok()?).ok()?;
        (answer.status == 200).then(|| row["v"].get().to_owned())
    }

    /// Compares what was answered with what is stored, and with the value that it came from.
    fn judge(&mut self, accepted: &[Accepted]) {
        let letters = dead_letters(&self.site);
        let said = self.said.clone();
        let is_announced = |name: &str| said.lines().any(|line| line.starts_with(&format!("{name}: ")));
        for Accepted { table, id, source, sent, answer } in accepted {
            let (case, name) = (self.case(*table, *id), name(*table));
            let stored = rows(&self.site, &name, "id");
            let Some(cells) = stored.by_key.get(&id.to_string()) else {
                let reason = letters.iter().find(|(of, _)| *of == name).map(|(_, reason)| reason);
                if reason.is_none() || !is_announced(&name) {
                    self.report.add(
                        &case,
                        format!("{:?} was accepted and is not stored: {reason:?}", answer["v"].get()),
                    );
                }
                continue;
            };
            let found = stored.compare(&id.to_string(), answer);
            let is_refused = *id >= PATCHED && cells[1].json() == "null" && is_announced(&name);
            if found.is_err() && is_refused && letters.iter().any(|(of, _)| *of == name) {
                continue;
            }
            self.report.check(&case, found);
            let ty = &stored.columns[1].ty;
            let source = source.and_then(|place| stored.by_key.get(&place.to_string()));
            let Some(source) = source else { continue };
            let (from, to) = match ty.as_str() {
                // SQLite stores one value in many forms: it is the same when it is shown so.
                _ if !self.site.way.is_postgres() => (sent.as_str(), answer["v"].get()),
                // A text that is posted is a text in JSON too.
                "json" | "jsonb" if (POSTED_AS_TEXT..REFUSED).contains(id) => {
                    (sent.as_str(), cells[1].json())
                }
                _ => (source[1].json(), cells[1].json()),
            };
            if canonical(ty, from) != canonical(ty, to) {
                self.report.add(&case, format!("{from} became {to}"));
            }
        }
    }
}

/// Whether a GET shows the stored row; false when it says that it cannot show this row.
fn look(client: &mut Client, target: &str, id: &str, stored: &Rows) -> Result<bool, String> {
    let answer = client.get(target);
    match answer.status {
        200 => members(answer.text()).and_then(|ours| stored.compare(id, &ours)).map(|()| true),
        // SQL does not say which row it is that it cannot show.
        500 if names(answer.text(), "v") && (target.starts_with("/sql") || names(answer.text(), id)) => {
            Ok(false)
        }
        _ => Err(brief(&answer)),
    }
}

/// Whether a text has this word.
fn names(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|part| part == word)
}

fn inserts(table: usize, values: &[&str], first: usize) -> String {
    let first = if first == LOADED { 1 } else { first + 1 };
    let one = |(place, value): (usize, &&str)| {
        format!("INSERT INTO {} VALUES ({}, {value});\n", name(table), first + place)
    };
    values.iter().enumerate().map(one).collect()
}

/// The content of a literal as a client sends it: as JSON where the type is JSON, as a text otherwise.
fn as_json(ty: &str, literal: &str) -> String {
    let text = literal.trim_start_matches('E').trim_matches('\'').replace("''", "'");
    if ty == "json" || ty == "jsonb" || literal.starts_with('E') {
        return if text.starts_with('"') { text } else { format!("\"{text}\"") };
    }
    serde_json::to_string(&text).expect("a text")
}

fn every_value(way: Way) {
    let mut run = Run::new(way);
    let given: usize = run.types.iter().map(|(_, values, refused)| values.len() + refused.len()).sum();
    let server = run.serve("at first");
    run.said = printed(&run.site.start().run("check", &[]));
    run.compare(&server, "loaded");
    for (table, (_, values, refused)) in run.types.iter().enumerate() {
        let nulls = vec!["NULL"; refused.len()];
        let rows = inserts(table, values, FOLLOWED) + &inserts(table, &nulls, PATCHED);
        run.site.run(&rows).unwrap_or_else(|error| panic!("{error}"));
    }
    run.compare(&server, "followed");
    let accepted = run.post_all(&server);
    server.drain();
    run.judge(&accepted);
    run.compare(&server, "drained");
    let written = server.admin("POST", "/checkpoint");
    if written.status != 200 {
        run.report.add("checkpoint", brief(&written));
    }
    drop(server.stop());
    let server = run.serve("from a checkpoint");
    run.compare(&server, "from a checkpoint");
    // What only the log has: a kill, and a replay.
    server.pause_drain(true);
    let mut client = server.client();
    let mut accepted = Vec::new();
    for table in run.served.clone() {
        for place in 1..=run.types[table].1.len() {
            if let Some(shown) = run.shown(&mut client, table, place) {
                accepted.extend(run.post(&mut client, table, REPLAYED + place, &shown));
            }
        }
    }
    server.kill();
    let server = run.serve("after a kill");
    let mut client = server.client();
    for one in &accepted {
        let answer = client.get(&format!("/{}/{}", name(one.table), one.id));
        let found = members(std::str::from_utf8(&answer.body).unwrap_or_default());
        let is_same =
            found.is_ok_and(|found| found.get("v").map(|v| v.get()) == one.answer.get("v").map(|v| v.get()));
        if !is_same {
            run.report.add(&run.case(one.table, one.id), format!("after a replay: {}", brief(&answer)));
        }
    }
    server.drain();
    run.judge(&accepted);
    run.compare(&server, "after a replay");
    println!("{given} values of {} types: {:?}", run.types.len(), run.counts);
    let cast: Vec<&str> = run.cast.iter().map(|table| run.types[*table].0).collect();
    assert_eq!(cast, if way.is_postgres() { edges::CAST_IN_SQL } else { &[] }, "what `sql` needs a cast for");
    run.report.finish();
}

#[test]
fn every_value_beside_logical_decoding() {
    let count: usize =
        edges::OF_POSTGRES.iter().map(|(_, values, refused)| values.len() + refused.len()).sum();
    assert!(count >= 300, "{count}");
    every_value(Way::Logical);
}

#[test]
fn every_value_beside_triggers() {
    every_value(Way::Triggers);
}

#[test]
fn every_value_of_sqlite() {
    every_value(Way::Sqlite);
}
