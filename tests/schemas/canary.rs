//! No message holds a value of a row: every column but the key holds a word that occurs nowhere else, errors
//! of each kind are provoked, and what the server printed, its problems and its admin pages are searched.
//!
//! On Redis, which follows nothing and answers no write strictly, the Redis is killed as well.

use crate::site::{Site, Way, printed, soon};
use forebay_tests::{Server, wait_for};
use std::fmt::Write as _;

/// What the rows hold, as text, number, date, UUID, and in the forms in which bytes are printed.
const WORDS: [&str; 8] = [
    "canary",
    "7700770",
    "2077-07-17",
    "ca9a9ca9",
    "63616e617279",
    "Y2FuYXJ5",
    "99, 97, 110, 97, 114",
    "63 61 6e 61",
];

const OF_POSTGRES: &str = r#"
CREATE EXTENSION IF NOT EXISTS btree_gist;
CREATE TYPE mood AS ENUM ('well', 'ill');
CREATE TABLE parent (id bigint PRIMARY KEY, email text UNIQUE NOT NULL);
INSERT INTO parent VALUES (7, 'canary-parent@x');
CREATE TABLE sick (id bigint PRIMARY KEY, parent_id bigint REFERENCES parent, email text UNIQUE, word text NOT NULL,
  short varchar(12), low integer, high integer, day date, at timestamptz, n numeric(9,2), d double precision, doc jsonb,
  raw bytea, tag uuid, feels mood, days date[], CONSTRAINT ordered CHECK (low <= high), CONSTRAINT feeling CHECK (length(word) < 30),
  EXCLUDE USING gist (short WITH =));
CREATE UNIQUE INDEX ON sick (lower(word));
CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.word = 'canary-cast' THEN NEW.low = NEW.word::integer; END IF;
  IF NEW.word = 'canary-skip' THEN RETURN NULL; END IF;
  RETURN NEW; END $$;
CREATE TRIGGER refuses BEFORE INSERT OR UPDATE ON sick FOR EACH ROW EXECUTE FUNCTION refuses();
INSERT INTO sick VALUES (1, 7, 'canary-1@x', 'canary-one', 'canary-1', 7700770, 7700770, '2077-07-17', '2077-07-17Z', 7700770,
  7700770, '"canary"', 'canary', 'ca9a9ca9-0000-4000-8000-000000000000', 'well', '{2077-07-17}');
"#;

const OF_SQLITE: &str = r#"
CREATE TABLE parent (id INTEGER PRIMARY KEY, email TEXT UNIQUE NOT NULL);
INSERT INTO parent VALUES (7, 'canary-parent@x');
CREATE TABLE sick (id INTEGER PRIMARY KEY, parent_id INTEGER REFERENCES parent, email TEXT UNIQUE, word TEXT NOT NULL,
  short TEXT, low INTEGER, high INTEGER, day TEXT, at DATETIME, n NUMERIC, d REAL, doc JSON, raw BLOB, tag TEXT, feels TEXT,
  days TEXT, CONSTRAINT ordered CHECK (low <= high), CONSTRAINT feeling CHECK (length(word) < 30));
CREATE UNIQUE INDEX sick_word ON sick (lower(word));
CREATE TRIGGER refuses BEFORE INSERT ON sick WHEN NEW.word = 'canary-cast' BEGIN SELECT RAISE(ABORT, 'refused'); END;
CREATE TRIGGER skips BEFORE INSERT ON sick WHEN NEW.word = 'canary-skip' BEGIN SELECT RAISE(IGNORE); END;
INSERT INTO sick VALUES (1, 7, 'canary-1@x', 'canary-one', 'canary-1', 7700770, 7700770, '2077-07-17', '2077-07-17', 7700770,
  7700770, '"canary"', 'canary', 'ca9a9ca9', 'well', '{2077-07-17}');
"#;

/// Expressions over a row that fail, by SQL. A name of the row's as a table's comes last: `regclass`.
const FAIL_IN_POSTGRES: [&str; 20] = [
    "word::integer",
    "word::bigint",
    "word::numeric",
    "word::double precision",
    "word::boolean",
    "word::date",
    "word::timestamptz",
    "word::interval",
    "word::uuid",
    "word::mood",
    "word::jsonb",
    "word::integer[]",
    "word::inet",
    "word::bytea::text || chr(-1)",
    "word::bit(8)",
    "low::smallint",
    "n * 1e30::numeric(9,2)",
    "to_date(word, 'YYYY-MM-DD')",
    "doc::integer",
    "regexp_replace(word, '(' || word, '')",
];

const FAIL_IN_SQLITE: [&str; 4] = [
    "json(word)",
    "json_extract(word, '$.a')",
    "abs(-9223372036854775807 - 1 + 0 * low)",
    "json_extract('{}', word)",
];

/// Bodies that are refused before the answer, when they are drained, or that change nothing.
const POSTED: [&str; 20] = [
    r#"{"id": 1,"word":"canary-dup"}"#,
    r#"{"id":20,"email":"canary-1@x","word":"canary-20"}"#,
    r#"{"id":21,"parent_id":7700771,"word":"canary-21"}"#,
    r#"{"id":22,"word":"canary-22","low":7700772,"high":7700770}"#,
    r#"{"id":23,"word":"canary-that-is-longer-than-a-check-permits"}"#,
    r#"{"id":24,"word":"CANARY-ONE"}"#,
    r#"{"id":25,"word":"canary-25","short":"canary-1"}"#,
    r#"{"id":26,"word":"canary-cast"}"#,
    r#"{"id":27,"word":"canary-skip"}"#,
    r#"{"id":28,"word":"canary-28","low":"canary"}"#,
    r#"{"id":29,"word":"canary-29","day":"2077-07-17-canary"}"#,
    r#"{"id":30,"word":"canary-30","n":77007707700770}"#,
    r#"{"id":31,"word":"canary-31","tag":"ca9a9ca9-canary"}"#,
    r#"{"id":32,"word":"canary-32","feels":"canary-none"}"#,
    r#"{"id":33,"word":"canary-33","short":"canary-that-is-too-long"}"#,
    r#"{"id":34,"word":"canary-34","days":["2077-07-17","canary"]}"#,
    r#"{"id":35,"word":"canary-35","raw":"canary!"}"#,
    r#"{"id":36,"word":null,"email":"canary-36@x"}"#,
    r#"{"id":37,"word":"canary-37","doc":{"canary":7700770"#,
    r#"{"id":38,"word":"canary-38\u0000"}"#,
];

const COLUMNS: [&str; 15] = [
    "parent_id",
    "email",
    "word",
    "short",
    "low",
    "high",
    "day",
    "at",
    "n",
    "d",
    "doc",
    "raw",
    "tag",
    "feels",
    "days",
];

fn config(way: Way) -> String {
    let list = |form: &dyn Fn(&str) -> String| COLUMNS.iter().map(|c| form(c)).collect::<Vec<_>>().join(", ");
    let (params, values) = (list(&|c| format!("{c} = \"?\"")), list(&|c| format!("{c} = \"${c}\"")));
    let follow = if way == Way::Redis { "follow = false\n" } else { "" };
    let mut config = format!(
        "[log]\naccess = 1\n[table.parent]\n{follow}[table.sick]\n{follow}\
         [[endpoint]]\nroute = \"GET /sick/{{id}}\"\nget = \"sick\"\n\
         [[endpoint]]\nroute = \"POST /sick/{{id}}/low\"\nincrement = \"sick\"\ncolumn = \"low\"\nby = \"$by\"\n\
         [[endpoint]]\nroute = \"DELETE /parent/{{id}}\"\ndelete = \"parent\"\n",
    );
    let paths = [("", ""), ("/strict", "durability = \"database\"\n")];
    for (path, durability) in if way == Way::Redis { &paths[..1] } else { &paths } {
        let _ = write!(
            config,
            "[[endpoint]]\nroute = \"POST {path}/sick\"\ninsert = \"sick\"\n{durability}params = {{ {params} }}\n\
             values = {{ id = \"$id\", {values} }}\n\
             [[endpoint]]\nroute = \"PATCH {path}/sick/{{id}}\"\nupdate = \"sick\"\n{durability}params = {{ {params} }}\n\
             values = {{ {values} }}\n"
        );
    }
    let (names, marks) = (COLUMNS.join(", "), list(&|c| format!("${c}")));
    let _ = write!(
        config,
        "[[endpoint]]\nroute = \"POST /sql/sick\"\nparams = {{ {params} }}\nsql = \"INSERT INTO sick (id, {names}) VALUES ($id, {marks})\"\n"
    );
    let _ = write!(
        config,
        "[[job]]\nname = \"casts\"\nevery = \"1s\"\nsql = \"\"\"UPDATE sick SET email = CAST({} AS text)\"\"\"\n",
        failing(way)[0]
    );
    for (index, what) in failing(way).iter().enumerate() {
        let _ = write!(
            config,
            "[[endpoint]]\nroute = \"GET /fails/{index}/{{id}}\"\nsql = \"\"\"SELECT CAST({what} AS text) AS fails FROM sick WHERE id = $id\"\"\"\n"
        );
    }
    config
}

fn failing(way: Way) -> &'static [&'static str] {
    if way.is_postgres() { &FAIL_IN_POSTGRES } else { &FAIL_IN_SQLITE }
}

/// The first line that holds a value, if one does.
fn leak(text: &str) -> Option<&str> {
    text.lines().find(|line| WORDS.iter().any(|word| line.to_lowercase().contains(&word.to_lowercase())))
}

/// What was searched, and what holds a value.
#[derive(Default)]
struct Search {
    problems: usize,
    leaks: Vec<String>,
}

impl Search {
    fn look(&mut self, place: &str, text: &str) {
        if let Some(line) = leak(text) {
            let line: String = line.chars().take(400).collect();
            self.leaks.push(format!("{place}: {line}"));
        }
    }

    fn pages(&mut self, server: &Server, methods: &[&str]) {
        for (method, path) in PAGES.iter().filter(|(method, _)| methods.contains(method)) {
            self.look(path, server.admin(method, path).text());
        }
    }

    /// Sends a request and searches its problem.
    fn ask(&mut self, server: &Server, method: &str, target: &str, body: Option<&str>) -> u16 {
        let answer = server.client().ask(method, target, body);
        if answer.status >= 400 {
            self.problems += 1;
            let request = format!("{method} {target} {} {}", body.unwrap_or_default(), answer.status);
            self.look(&request, answer.text());
        }
        answer.status
    }
}

/// A body with the number of the way that it takes before its key, so that each has rows of its own.
fn numbered(body: &str, way: usize) -> String {
    body.replace("\"id\":", &format!("\"id\":{way}"))
}

fn requests(search: &mut Search, server: &Server, way: Way) {
    for (number, path) in ["/sick", "/strict/sick", "/sql/sick"].iter().enumerate() {
        for body in POSTED {
            search.ask(server, "POST", path, Some(&numbered(body, number + 1)));
        }
    }
    for path in ["/sick/1", "/strict/sick/1"] {
        for body in POSTED {
            search.ask(server, "PATCH", path, Some(&body.replace("\"id\":", "\"key\":")));
        }
    }
    for index in 0..failing(way).len() {
        let status = search.ask(server, "GET", &format!("/fails/{index}/1"), None);
        assert!(status >= 400, "{} did not fail", failing(way)[index]);
    }
    for by in ["7700770", "2140000000", "9223372036854775807", "canary"] {
        search.ask(server, "POST", "/sick/1/low", Some(&format!("{{\"by\":{by}}}")));
    }
    search.ask(server, "DELETE", "/parent/7", None);
}

/// Rows that memory cannot hold, a table that takes nothing, and a lock that the drain waits for.
fn others(search: &mut Search, site: &Site, server: &Server) {
    let unfit = if site.way.is_postgres() {
        "INSERT INTO sick (id, word, day, at, n, d, days) VALUES
         (50, 'canary-50', 'infinity', '20770-07-17Z', 'NaN', '-Infinity', '{2077-07-17,infinity}')"
    } else {
        "INSERT INTO sick (id, word, low, at, d, doc, raw, day) VALUES
         (50, 'canary-50', 'canary', 'canary', 'canary', x'63616e617279', 'canary', x'63616e617279')"
    };
    site.run(unfit).unwrap_or_else(|error| panic!("{error}"));
    if site.way == Way::Redis {
        return without_redis(search, site, server);
    }
    let seen = soon(|| match search.ask(server, "GET", "/sick/50", None) {
        404 => Err("it is not seen".to_owned()),
        _ => Ok(()),
    });
    seen.unwrap_or_else(|what| panic!("{what}"));
    if !site.way.is_postgres() {
        return;
    }
    let mut other = site.postgres();
    other.batch_execute("BEGIN; UPDATE sick SET word = 'canary-held' WHERE id = 1").expect("a row is locked");
    search.ask(server, "PATCH", "/sick/1", Some(r#"{"word":"canary-patched"}"#));
    wait_for("the lock is named", || {
        let ready = server.admin("GET", "/ready");
        search.look("GET /ready", ready.text());
        ready.text().contains("holds a lock").then_some(())
    });
    search.ask(server, "PATCH", "/strict/sick/1", Some(r#"{"word":"canary-strict"}"#));
    other.batch_execute("ROLLBACK").expect("a lock can be released");
    let alter = "ALTER TABLE sick ADD tier text NOT NULL DEFAULT 'canary', ALTER tier DROP DEFAULT";
    site.run(
        "ALTER TABLE sick ADD tier text NOT NULL DEFAULT 'canary'; ALTER TABLE sick ALTER tier DROP DEFAULT",
    )
    .unwrap_or_else(|error| panic!("{alter}: {error}"));
    search.ask(server, "POST", "/sick", Some(r#"{"id":60,"word":"canary-60"}"#));
    wait_for("the table is stopped", || {
        let drain = server.admin("GET", "/drain");
        search.look("GET /drain", drain.text());
        drain.text().contains("tier").then_some(())
    });
    site.run("ALTER TABLE sick DROP tier").unwrap_or_else(|error| panic!("{error}"));
    wait_for("the table goes on", || {
        server.drain_state()["stopped_tables"].as_array().is_none_or(Vec::is_empty).then_some(())
    });
}

/// Requests and pages while the Redis is down, when it is back, and when others have written to it.
fn without_redis(search: &mut Search, site: &Site, server: &Server) {
    let all = |search: &mut Search, bodies: &[&str], methods: &[&str]| {
        for body in bodies {
            search.ask(server, "POST", "/sick", Some(&numbered(body, 4)));
            search.ask(server, "PATCH", "/sick/1", Some(&body.replace("\"id\":", "\"key\":")));
        }
        search.ask(server, "GET", "/sick/1", None);
        search.pages(server, methods);
    };
    // Each waits for the Redis for some time.
    site.without_redis(|| all(search, &POSTED[..1], &["GET"]));
    wait_for("the Redis is used again", || (server.admin("GET", "/ready").status == 200).then_some(()));
    all(search, &POSTED, &["GET", "POST"]);
}

const PAGES: [(&str, &str); 16] = [
    ("GET", "/"),
    ("GET", "/ready"),
    ("GET", "/drain"),
    ("GET", "/dead-letters"),
    ("GET", "/follow"),
    ("GET", "/tables"),
    ("GET", "/jobs"),
    ("GET", "/cache"),
    ("GET", "/metrics"),
    ("GET", "/host"),
    ("POST", "/verify"),
    ("POST", "/refresh?table=sick&key=50"),
    ("POST", "/warm?table=sick&where=abs(word)%20%3D%20CAST(word%20AS%20integer)"),
    ("POST", "/warm?table=sick&where=id%20%3D%2050"),
    ("POST", "/checkpoint"),
    ("POST", "/drain/replay"),
];

fn no_message_holds_a_value(way: Way) {
    let site = Site::new(way, if way.is_postgres() { OF_POSTGRES } else { OF_SQLITE });
    std::fs::write(&site.config, config(way)).expect("a file can be written");
    let mut search = Search::default();
    let server = site.serve().unwrap_or_else(|output| panic!("{output}"));
    requests(&mut search, &server, way);
    others(&mut search, &site, &server);
    server.drain();
    let dead = server.admin("GET", "/dead-letters").json()["count"].as_u64().unwrap_or_default();
    assert!(dead >= 2, "{dead} dead letters");
    assert!(search.problems >= 60, "{} problems", search.problems);
    search.pages(&server, &["GET", "POST"]);
    for command in ["verify", "drain"] {
        let path = site.config.to_str().expect("a path of text");
        let output = printed(&site.start().run(command, &[]));
        search.look(command, &output);
        search.look("check", &printed(&site.command("check", &[path])));
    }
    let draft = site.folder.path().join("draft.toml");
    let arguments = [&site.url(), "-o", draft.to_str().expect("a path of text")].map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    search.look("init", &printed(&site.command("init", &arguments)));
    search.look("the draft", &std::fs::read_to_string(&draft).expect("a draft"));
    search.look("the server's output", &server.stop().output);
    for keeps_data in [true, false] {
        if !keeps_data {
            std::fs::remove_dir_all(site.folder.data()).expect("a folder can be removed");
        }
        let server = site.serve().unwrap_or_else(|output| panic!("{output}"));
        search.ask(&server, "GET", "/sick/50", None);
        search.look("the server's output after a start", &server.stop().output);
    }
    search.leaks.dedup();
    assert!(
        search.leaks.is_empty(),
        "{} messages hold a value:\n{}",
        search.leaks.len(),
        search.leaks.join("\n")
    );
}

#[test]
fn no_message_holds_a_value_of_postgres() {
    no_message_holds_a_value(Way::Logical);
}

#[test]
fn no_message_holds_a_value_of_triggers() {
    no_message_holds_a_value(Way::Triggers);
}

#[test]
fn no_message_holds_a_value_of_sqlite() {
    no_message_holds_a_value(Way::Sqlite);
}

#[test]
fn no_message_holds_a_value_of_redis() {
    no_message_holds_a_value(Way::Redis);
}
