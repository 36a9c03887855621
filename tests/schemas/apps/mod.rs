//! Applications from their registries, unmodified: each makes its own database, writes to it and migrates
//! it, once alone and once with a server beside it that serves what `forebay init` drafts.
//!
//! What an application says and logs is the same both times; each GET shows what the database has, within a
//! second; after `unfollow --all` the database holds what it holds without us. A folder for each has
//! `drive.py`, which takes the steps, and pins the versions; they are installed into `target/apps`.
//!
//! - `make apps` (`FOREBAY_APPS` names them): all steps of each, by each way of following
//! - without it, as in `make test` and CI: Wagtail's first steps, with logical decoding. That needs Python
//!   only; PocketBase needs a newer Go than some Debian has, Synapse two installations

mod pocketbase;
mod synapse;
mod wagtail;

use crate::json::{members, path};
use crate::judge::{rows, tables};
use crate::report::prove;
use crate::site::{Site, Way, ask, brief, printed};
use forebay_tests::{Server, number, root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The longest time until a GET shows what the application has committed, on a machine that does other
/// things.
const FRESH_MS: u64 = 5000;

/// What it does once nothing of ours is left.
const AFTER: &str = "write 9";

/// How many steps Wagtail takes where `FOREBAY_APPS` names none.
const SOME_STEPS: usize = 4;

/// Everything that a database holds, except its rows and what PostgreSQL itself names.
const HELD_BY_POSTGRES: &str = "WITH own AS (SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema') \
     SELECT 'schema', nspname, '' FROM own \
     UNION ALL SELECT 'relation', nspname || '.' || relname, \
       concat_ws(' ', relkind, relpersistence, relreplident, reloptions) FROM pg_class JOIN own ON own.oid = relnamespace \
     UNION ALL SELECT 'function', nspname || '.' || proname, '' FROM pg_proc JOIN own ON own.oid = pronamespace \
     UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, tgenabled::text FROM pg_trigger WHERE NOT tgisinternal \
     UNION ALL SELECT 'event trigger', evtname, '' FROM pg_event_trigger \
     UNION ALL SELECT 'publication', pubname, '' FROM pg_publication \
     UNION ALL SELECT 'extension', extname, '' FROM pg_extension \
     UNION ALL SELECT 'slot', slot_name, '' FROM pg_replication_slots WHERE database = current_database() \
     ORDER BY 1, 2, 3";

/// An installed application.
struct App {
    name: &'static str,
    python: PathBuf,
    environment: Vec<(&'static str, String)>,
    ways: &'static [Way],
    /// What `drive.py` is called with, one after the other; the first step makes the database.
    steps: &'static [&'static str],
    /// Whether a line of its log tells of an error.
    is_error: fn(&str) -> bool,
}

/// A table as `init` drafts it: its key, and its columns at that time, as far as they are shown.
struct Served {
    key: String,
    shown: Vec<String>,
    /// Whether the route names what it shows.
    is_named: bool,
}

/// One life of an application.
struct Life<'a> {
    app: &'a App,
    site: Site,
    /// Whether a server is beside it.
    beside: Option<Beside>,
}

struct Beside {
    server: Server,
    served: BTreeMap<String, Served>,
    /// The longest time until a GET showed what the database has, where it did not at the first look.
    latest: Duration,
}

/// The files of an application here.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/apps").join(name)
}

/// The folder of what a file pins, which `install` fills when that changes.
fn install_once(app: &str, pinned: &str, install: impl FnOnce(&Path)) -> PathBuf {
    let wanted = std::fs::read_to_string(source(app).join(pinned)).expect("a file that pins versions");
    let folder = root().join("target/apps").join(app).join(pinned);
    let ready = folder.join("ready");
    if std::fs::read_to_string(&ready).is_ok_and(|text| text == wanted) {
        return folder;
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("a folder can be removed");
    }
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    install(&folder);
    std::fs::write(ready, wanted).expect("a file can be written");
    folder
}

/// The interpreter of an environment with the packages that a file pins.
fn interpreter(app: &str, pinned: &str) -> PathBuf {
    let environment = install_once(app, pinned, |folder| {
        let needs = "Python 3.11 or later and its venv (Debian: python3 python3-venv)";
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder), needs);
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        let mut pip = Command::new(folder.join("bin/python"));
        succeed(pip.args(install).arg(source(app).join(pinned)), "a registry of Python packages");
    });
    environment.join("bin/python")
}

/// Runs a program to its end; `needs` is what it fails without.
#[track_caller]
fn succeed(command: &mut Command, needs: &str) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; this needs {needs}"));
    let status = output.status;
    assert!(status.success(), "{command:?}: {status}; this needs {needs}\n{}", printed(&output));
    output
}

impl Life<'_> {
    fn new(app: &App, way: Way) -> Life<'_> {
        Life { app, site: Site::new(way, ""), beside: None }
    }

    /// Takes a step; what the application said.
    fn step(&self, step: &str) -> String {
        let mut command = Command::new(&self.app.python);
        command.arg(source(self.app.name).join("drive.py")).args(step.split(' '));
        command.envs(self.app.environment.iter().map(|(name, value)| (name, value)));
        command.env("APP_FOLDER", self.site.folder.path()).env("DATABASE_URL", self.site.url());
        command.env("DATABASE_FILE", self.site.folder.database());
        self.anywhere(&String::from_utf8_lossy(&succeed(&mut command, "what it says it lacks").stdout))
    }

    /// The errors that it has logged.
    fn errors(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.site.folder.path().join("app.log")).expect("it has a log");
        self.anywhere(&log).lines().filter(|line| (self.app.is_error)(line)).map(str::to_owned).collect()
    }

    /// What it said, without the name of its folder.
    fn anywhere(&self, said: &str) -> String {
        said.replace(&self.site.folder.path().display().to_string(), "FOLDER")
    }

    /// `init`, `check` and `serve`, as its operator would.
    fn serve(&mut self) {
        let config = self.site.config.display().to_string();
        let url = match self.site.way {
            Way::Sqlite => format!("sqlite:{}", self.site.folder.database().display()),
            _ => self.site.url_of_server(),
        };
        for (command, arguments) in [("init", vec![&*url, "-o", &*config]), ("check", vec![&*config])] {
            let output = self.site.command(command, &arguments);
            assert!(output.status.success(), "{command}: {}", printed(&output));
        }
        let served = self.drafted();
        assert!(!served.is_empty(), "nothing is served");
        let server = self.site.serve().unwrap_or_else(|output| panic!("{output}"));
        self.beside = Some(Beside { server, served, latest: Duration::ZERO });
    }

    /// The tables that the drafted config serves.
    fn drafted(&self) -> BTreeMap<String, Served> {
        let config = std::fs::read_to_string(&self.site.config).expect("init wrote it");
        let mut served = BTreeMap::new();
        for endpoint in config.split("[[endpoint]]") {
            let route = endpoint.lines().find_map(|line| line.strip_prefix("route = \"GET /"));
            let Some((table, key)) = route.and_then(|route| route.split_once("/{")) else { continue };
            let key = key.trim_end_matches("}\"").to_owned();
            let fields = endpoint.lines().find_map(|line| line.strip_prefix("reply = { fields = ["));
            let is_named = fields.is_some();
            let shown = match fields {
                Some(fields) => {
                    fields.trim_end_matches("] }").split(", ").map(|name| name.replace('"', "")).collect()
                }
                None => rows(&self.site, table, &key).columns.into_iter().map(|column| column.name).collect(),
            };
            served.insert(table.to_owned(), Served { key, shown, is_named });
        }
        served
    }

    /// Every GET shows what the database has; tables and columns that are gone by now show nothing.
    fn compare(&mut self, after: &str) {
        let Some(Beside { server, served, latest }) = &mut self.beside else { return };
        let since = Instant::now();
        let there = tables(&self.site);
        let mut open: Vec<(&String, &Served)> =
            served.iter().filter(|(table, _)| there.contains(table)).collect();
        let bar = Duration::from_millis(number("FOREBAY_APPS_FRESH_MS", FRESH_MS));
        let mut is_first = true;
        while !open.is_empty() {
            let mut wrong = String::new();
            open.retain(|(table, served)| {
                let began = since.elapsed();
                match compare_table(&self.site, server, table, served) {
                    Ok(()) => {
                        *latest = if is_first { *latest } else { began.max(*latest) };
                        false
                    }
                    Err(what) => {
                        wrong = format!("{table}: {what}");
                        true
                    }
                }
            });
            is_first = false;
            let is_late = !open.is_empty() && since.elapsed() > bar;
            assert!(!is_late, "{} after {after}, {bar:?} later: {wrong}\n{}", self.app.name, server.output());
        }
    }

    /// Stops the server and takes everything of ours out of the database.
    fn leave(&mut self) {
        let Some(Beside { server, .. }) = self.beside.take() else { return };
        let stopped = server.stop();
        assert!(stopped.status.success(), "{stopped:?}");
        let output = self.site.start().run("unfollow", &["--all"]);
        assert!(output.status.success(), "unfollow: {}", printed(&output));
    }

    /// Everything that the database holds, except its rows and what SQLite itself makes.
    fn holdings(&self) -> Vec<String> {
        let sql = if self.site.way.is_postgres() {
            HELD_BY_POSTGRES
        } else {
            "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        };
        let held = self.site.archive().rows(sql);
        held.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect()
    }
}

/// What is wrong with the GETs of a table's rows.
fn compare_table(site: &Site, server: &Server, table: &str, served: &Served) -> Result<(), String> {
    let Served { key, shown, is_named } = served;
    let columns = rows(site, table, key);
    let mut client = server.client();
    for place in columns.by_key.keys().filter(|key| !key.is_empty() && !key.contains(['/', '\\'])) {
        let answer = ask(&mut client, "GET", &format!("/{table}/{}", path(place)), None);
        // What names a column that is gone waits for it, or for another config.
        let is_gone = |name: &String| columns.columns.iter().all(|column| column.name != *name);
        let says = |name: &&String| answer.text().contains(&format!("has no column {name}"));
        if *is_named
            && answer.status == 503
            && shown.iter().filter(|name| is_gone(name)).any(|name| says(&name))
        {
            return Ok(());
        }
        if answer.status != 200 {
            return Err(format!("row {place}: {}", brief(&answer)));
        }
        let ours = members(answer.text())?;
        columns.compare_but(place, &ours, |column| !shown.iter().any(|shown| shown == column))?;
    }
    let count: usize = columns.by_key.len();
    let memory = server.admin("GET", "/tables").json();
    let loaded = memory["tables"].as_array().into_iter().flatten().find(|found| found["table"] == table);
    match loaded.and_then(|found| found["rows"].as_u64()) {
        Some(rows) if rows as usize != count => {
            Err(format!("{rows} rows in memory, {count} in the database"))
        }
        _ => Ok(()),
    }
}

/// What came of a life.
struct Told {
    said: String,
    errors: Vec<String>,
    holdings: Vec<String>,
}

/// A life of an application.
fn lived(app: &App, way: Way, steps: &[&str], is_beside: bool) -> Told {
    let mut life = Life::new(app, way);
    let mut said = life.step(steps[0]);
    if is_beside {
        life.serve();
    }
    for step in &steps[1..] {
        said += &life.step(step);
        life.compare(step);
    }
    if let Some(Beside { served, latest, .. }) = &life.beside {
        let (tables, way) = (served.len(), way.name());
        println!("{} ({way}): {tables} tables, right at the first look or {latest:?} after", app.name);
    }
    life.leave();
    let holdings = life.holdings();
    said += &life.step(AFTER);
    Told { said, errors: life.errors(), holdings }
}

/// The application alone, and the same with a server beside it.
fn unmodified_and_unharmed(app: &App, way: Way, steps: &[&str]) {
    let [alone, beside] = [false, true].map(|is_beside| lived(app, way, steps, is_beside));
    let (name, way) = (app.name, way.name());
    let said = [&alone, &beside].map(|told| told.said.lines().collect::<Vec<_>>());
    let first = said[0].iter().zip(&said[1]).find(|(alone, beside)| alone != beside);
    assert_eq!(first, None, "{name} says something else beside a server ({way})");
    assert_eq!(said[0].len(), said[1].len(), "{name} says another number of things ({way})");
    assert_eq!(alone.errors, beside.errors, "{name} logs other errors beside a server ({way})");
    let left: Vec<_> = beside.holdings.iter().filter(|held| !alone.holdings.contains(held)).collect();
    let lost: Vec<_> = alone.holdings.iter().filter(|held| !beside.holdings.contains(held)).collect();
    assert!(left.is_empty() && lost.is_empty(), "{name} ({way}): left behind {left:?}, lost {lost:?}");
}

#[test]
fn applications_are_unharmed() {
    let Ok(names) = std::env::var("FOREBAY_APPS") else {
        return unmodified_and_unharmed(&wagtail::app(), Way::Logical, &wagtail::STEPS[..SOME_STEPS]);
    };
    for name in names.split_whitespace() {
        let app = match name {
            "pocketbase" => pocketbase::app(),
            "synapse" => synapse::app(),
            "wagtail" => wagtail::app(),
            _ => panic!("FOREBAY_APPS={name}: must be of pocketbase, synapse, wagtail"),
        };
        for way in app.ways {
            unmodified_and_unharmed(&app, *way, app.steps);
            prove("apps", "-", 1, 0, &format!("{name} {}", way.name()));
        }
    }
}
