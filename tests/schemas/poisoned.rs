//! One row that cannot be shown or cannot be stored, of each kind, beside nine healthy tables that refer
//! to one parent: after each of them the nine are followed, drained, and take writes that wait for the
//! database; so they are after a restart.

use crate::catalogue::{compare_table, dead_letters};
use crate::report::Report;
use crate::site::{Site, Way, brief, soon};
use Poison::{Posted, Written};
use forebay_tests::{Freshness, Server};
use std::time::{Duration, Instant};

/// A kind of row: its name, and how it comes.
enum Poison {
    /// Others write it; the first one of the pair, and the statement that mends it.
    Written(&'static str, &'static str, &'static str),
    /// A client posts this body; it is refused before the answer, or a dead letter.
    Posted(&'static str, &'static str),
}

const OF_POSTGRES: &str = "
CREATE TABLE parent (id bigint PRIMARY KEY, name text);
INSERT INTO parent VALUES (1, 'one');
CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.word = 'raise' THEN RAISE EXCEPTION 'no'; END IF;
  IF NEW.word = 'as another' THEN RAISE EXCEPTION 'no' USING ERRCODE = '22P02'; END IF;
  IF NEW.word = 'skip' THEN RETURN NULL; END IF;
  RETURN NEW; END $$;
CREATE TABLE sick (id bigint PRIMARY KEY, parent_id bigint REFERENCES parent, day date, at timestamptz, n numeric, d double precision,
  days date[], word text, long text, low integer, high integer, CHECK (low <= high));
CREATE UNIQUE INDEX ON sick (lower(word));
CREATE TRIGGER raises BEFORE INSERT ON sick FOR EACH ROW EXECUTE FUNCTION raises();
INSERT INTO sick (id, word) VALUES (1, 'Well');
";

const KINDS_OF_POSTGRES: &[Poison] = &[
    Written(
        "infinite date",
        "INSERT INTO sick (id, day) VALUES (10, 'infinity')",
        "UPDATE sick SET day = '2026-01-01' WHERE id = 10",
    ),
    Written(
        "date before Christ",
        "INSERT INTO sick (id, day) VALUES (11, '0044-03-15 BC')",
        "UPDATE sick SET day = NULL WHERE id = 11",
    ),
    Written(
        "late instant",
        "INSERT INTO sick (id, at) VALUES (12, '20000-01-01Z')",
        "DELETE FROM sick WHERE id = 12",
    ),
    Written(
        "NaN",
        "INSERT INTO sick (id, n, d) VALUES (13, 'NaN', 'NaN')",
        "UPDATE sick SET n = 1, d = 1 WHERE id = 13",
    ),
    Written(
        "infinite numeric",
        "INSERT INTO sick (id, n) VALUES (14, '-Infinity')",
        "UPDATE sick SET n = 1 WHERE id = 14",
    ),
    Written(
        "array of such dates",
        "INSERT INTO sick (id, days) VALUES (15, '{2026-01-01,infinity}')",
        "UPDATE sick SET days = '{}' WHERE id = 15",
    ),
    Written(
        "a healthy row made so",
        "UPDATE sick SET day = '-infinity' WHERE id = 1",
        "UPDATE sick SET day = NULL WHERE id = 1",
    ),
    Written(
        LONG,
        "INSERT INTO sick (id, long) VALUES (16, repeat('x', 70000000))",
        "DELETE FROM sick WHERE id = 16",
    ),
    Posted("foreign key", r#"{"id":30,"parent_id":77}"#),
    Posted("check", r#"{"id":31,"low":2,"high":1}"#),
    Posted("unique by expression", r#"{"id":32,"word":"WELL"}"#),
    Posted("trigger raises", r#"{"id":33,"word":"raise"}"#),
    Posted("trigger raises what a value would", r#"{"id":34,"word":"as another"}"#),
    Posted("trigger skips", r#"{"id":35,"word":"skip"}"#),
    Posted("element", r#"{"id":36,"days":["2026-02-30"]}"#),
];

const OF_SQLITE: &str = "
CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO parent VALUES (1, 'one');
CREATE TABLE sick (id INTEGER PRIMARY KEY, parent_id INTEGER REFERENCES parent, day TEXT, at DATETIME, n NUMERIC, d REAL,
  flag BOOLEAN, word TEXT, low INTEGER, high INTEGER, CHECK (low <= high));
CREATE UNIQUE INDEX sick_word ON sick (lower(word));
CREATE TRIGGER raises BEFORE INSERT ON sick WHEN NEW.word = 'raise' BEGIN SELECT RAISE(ABORT, 'no'); END;
CREATE TRIGGER skips BEFORE INSERT ON sick WHEN NEW.word = 'skip' BEGIN SELECT RAISE(IGNORE); END;
INSERT INTO sick (id, word) VALUES (1, 'Well');
";

const KINDS_OF_SQLITE: &[Poison] = &[
    Written(
        "text in a number",
        "INSERT INTO sick (id, low) VALUES (10, 'none')",
        "UPDATE sick SET low = 1 WHERE id = 10",
    ),
    Written(
        "text in a real",
        "INSERT INTO sick (id, d) VALUES (11, 'none')",
        "UPDATE sick SET d = 1 WHERE id = 11",
    ),
    Written("infinity", "INSERT INTO sick (id, d) VALUES (12, 9e999)", "UPDATE sick SET d = 1 WHERE id = 12"),
    Written(
        "no time",
        "INSERT INTO sick (id, at) VALUES (13, 'soon')",
        "UPDATE sick SET at = NULL WHERE id = 13",
    ),
    Written(
        "no truth",
        "INSERT INTO sick (id, flag) VALUES (14, 7)",
        "UPDATE sick SET flag = 1 WHERE id = 14",
    ),
    Written(
        "blob in a text",
        "INSERT INTO sick (id, word) VALUES (15, x'ff')",
        "DELETE FROM sick WHERE id = 15",
    ),
    Written(
        "no UTF-8",
        "INSERT INTO sick (id, day) VALUES (16, CAST(x'ff' AS TEXT))",
        "DELETE FROM sick WHERE id = 16",
    ),
    Written(
        "a healthy row made so",
        "UPDATE sick SET low = 'none' WHERE id = 1",
        "UPDATE sick SET low = 1 WHERE id = 1",
    ),
    Posted("foreign key", r#"{"id":30,"parent_id":77}"#),
    Posted("check", r#"{"id":31,"low":2,"high":1}"#),
    Posted("unique by expression", r#"{"id":32,"word":"WELL"}"#),
    Posted("trigger raises", r#"{"id":33,"word":"raise"}"#),
    Posted("trigger skips", r#"{"id":34,"word":"skip"}"#),
];

const HEALTHY: usize = 9;
const LONG: &str = "a row of 70 MB";
/// The longest time until a write is in the database.
const DRAINED: Duration = Duration::from_secs(2);

struct Run {
    site: Site,
    report: Report,
    /// The number of the next row of each healthy table.
    next: usize,
    fresh: Freshness,
    /// The longest time until clients' writes were stored.
    drained: Duration,
    deviating: Vec<String>,
}

fn tables(is_postgres: bool) -> String {
    let (own, key) = if is_postgres { (OF_POSTGRES, "bigint") } else { (OF_SQLITE, "INTEGER") };
    let healthy = (1..=HEALTHY).map(|n| {
        format!(
            "CREATE TABLE t{n} (id {key} PRIMARY KEY, parent_id bigint NOT NULL REFERENCES parent ON DELETE CASCADE, n bigint);
             INSERT INTO t{n} VALUES (1, 1, 0);\n"
        )
    });
    format!("{own}{}", healthy.collect::<String>())
}

fn config(is_postgres: bool) -> String {
    let own = if is_postgres { ["days"] } else { ["flag"] };
    let columns = ["parent_id", "day", "at", "n", "d", "word", "low", "high"].into_iter().chain(own);
    let columns: Vec<&str> = columns.collect();
    let list = |form: &dyn Fn(&str) -> String| columns.iter().map(|c| form(c)).collect::<Vec<_>>().join(", ");
    let mut config = format!(
        "[table.parent]\n[table.sick]\n[[endpoint]]\nroute = \"GET /sick/{{id}}\"\nget = \"sick\"\n\
         [[endpoint]]\nroute = \"POST /sick\"\ninsert = \"sick\"\nparams = {{ {} }}\nvalues = {{ id = \"$id\", {} }}\n",
        list(&|c| format!("{c} = \"?\"")),
        list(&|c| format!("{c} = \"${c}\""))
    );
    for n in 1..=HEALTHY {
        config += &format!("[table.t{n}]\n[[endpoint]]\nroute = \"GET /t{n}/{{id}}\"\nget = \"t{n}\"\n");
        for (path, durability) in [("", ""), ("/strict", "durability = \"database\"\n")] {
            config += &format!(
                "[[endpoint]]\nroute = \"POST {path}/t{n}\"\ninsert = \"t{n}\"\n{durability}\
                 values = {{ id = \"$id\", parent_id = \"$parent_id\", n = \"$n\" }}\n"
            );
        }
    }
    config
}

impl Run {
    /// The nine are followed, drained, and take writes that wait for the database.
    fn are_healthy(&mut self, server: &Server, beside: &str) {
        self.next += 1;
        let (n, mut client) = (self.next, server.client());
        let mut wrong = Vec::new();
        let routes: Vec<String> = (1..=HEALTHY).map(|t| format!("/t{t}/1")).collect();
        let site = &self.site;
        let commit = |mark| {
            let updates: String =
                (1..=HEALTHY).map(|t| format!("UPDATE t{t} SET n = {mark} WHERE id = 1;")).collect();
            site.run(&updates).unwrap_or_else(|error| panic!("{error}"));
        };
        wrong.extend(self.fresh.measure(server, &routes, "/n", commit).err());
        for (path, id) in [("", n * 10), ("/strict", n * 10 + 1)] {
            for t in 1..=HEALTHY {
                let answer = client.post_json(
                    &format!("{path}/t{t}"),
                    &format!("{{\"id\":{id},\"parent_id\":1,\"n\":{n}}}"),
                );
                if answer.status >= 300 {
                    wrong.push(format!("POST {path}/t{t}: {}", brief(&answer)));
                }
            }
        }
        let (archive, written) = (self.site.archive(), Instant::now());
        let count = |t: usize| format!("(SELECT count(*) FROM t{t} WHERE id = {})", n * 10);
        let sql = format!("SELECT {}", (1..=HEALTHY).map(count).collect::<Vec<_>>().join(" + "));
        let are_stored = || match archive.number(&sql) as usize {
            HEALTHY => Ok(()),
            stored => Err(format!("{stored} of the {HEALTHY} tables are drained")),
        };
        wrong.extend(soon(are_stored).err());
        self.drained = self.drained.max(written.elapsed());
        if !wrong.is_empty() {
            self.report.add(beside, wrong.join(" | "));
        }
    }

    /// The poisoned rows are shown as the database has them, or say what they cannot show; a row is
    /// reported once.
    fn is_contained(&mut self, server: &Server) -> Result<(), String> {
        let mut wrong = Vec::new();
        let found = soon(|| {
            let all = compare_table(&self.site, server, "sick", "id").err().unwrap_or_default();
            let is_contained = |row: &&str| row.is_empty() || row.contains(": 500 ") && row.contains("sick");
            let others = all.split(" | ").filter(|row| !is_contained(row)).map(str::to_owned);
            wrong = others.filter(|row| !self.deviating.contains(row)).collect();
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join(" | ")) }
        });
        self.deviating.extend(wrong);
        found
    }
}

/// Whether the long row was read: its answer names it.
fn is_seen(server: &Server) -> Result<(), String> {
    match server.client().get("/sick/16").status {
        404 => Err("it is not seen".into()),
        _ => Ok(()),
    }
}

fn one_row_of_each_kind(way: Way) {
    let site = Site::new(way, &tables(way.is_postgres()));
    std::fs::write(&site.config, config(way.is_postgres())).expect("a file can be written");
    let report = Report::new("poisoned", way);
    let (fresh, drained) = (Freshness::default(), Duration::ZERO);
    let mut run = Run { site, report, next: 0, fresh, drained, deviating: Vec::new() };
    let mut server = run.site.serve().unwrap_or_else(|output| panic!("{output}"));
    run.are_healthy(&server, "at first");
    let kinds = if way.is_postgres() { KINDS_OF_POSTGRES } else { KINDS_OF_SQLITE };
    for kind in kinds {
        let name = match kind {
            Written(name, sql, _) => {
                run.site.run(sql).unwrap_or_else(|error| panic!("{error}"));
                if *name == LONG {
                    // What reads a row of this length reads no other meanwhile.
                    run.report.check(name, soon(|| is_seen(&server)));
                }
                name
            }
            Posted(name, body) => {
                let answer = server.client().post_json("/sick", body);
                if answer.status >= 500 {
                    run.report.add(name, format!("POST {body}: {}", brief(&answer)));
                }
                name
            }
        };
        run.are_healthy(&server, name);
        let found = run.is_contained(&server);
        run.report.check(name, found);
    }
    let letters = dead_letters(&run.site);
    if let Some((table, reason)) = letters.iter().find(|(table, _)| table != "sick") {
        run.report.add("dead letters", format!("one of {table}: {reason}"));
    }
    server.admin("POST", "/checkpoint");
    drop(server.stop());
    match run.site.serve() {
        Ok(running) => server = running,
        Err(output) => {
            run.report.add("a start", output.lines().last().unwrap_or_default());
            return run.report.finish();
        }
    }
    run.are_healthy(&server, "after a start");
    for kind in kinds {
        if let Written(_, _, mends) = kind {
            run.site.run(mends).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let mended = soon(|| compare_table(&run.site, &server, "sick", "id"));
    run.report.check("mended", mended);
    run.are_healthy(&server, "mended");
    run.report.finish();
    run.fresh.assert(way.name());
    println!("beside {}: drained after at most {:?}", way.name(), run.drained);
    assert!(run.drained <= DRAINED, "drained after {:?}", run.drained);
}

#[test]
fn one_row_of_each_kind_beside_logical_decoding() {
    one_row_of_each_kind(Way::Logical);
}

#[test]
fn one_row_of_each_kind_beside_triggers() {
    one_row_of_each_kind(Way::Triggers);
}

#[test]
fn one_row_of_each_kind_of_sqlite() {
    one_row_of_each_kind(Way::Sqlite);
}
