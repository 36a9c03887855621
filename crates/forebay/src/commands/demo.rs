//! `forebay demo`: a server in a scratch folder, every route of the codes example under load, a crash in the
//! middle, and the count of what survived.

mod child;
mod traffic;

use crate::cli::Demo;
use crate::failure::Failure;
use crate::start::runtime;
use child::Child;
use comfy_table::{Cell, CellAlignment, Table, presets};
use forebay_database::{Options, Store};
use forebay_load::{Results, Settings, Stop, Traffic};
use forebay_terminal::{answer, say};
use forebay_value::Value;
use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use traffic::{Acknowledged, Counting, Reading};

pub fn run(args: &Demo) -> Result<ExitCode, Failure> {
    let seconds = if args.seconds.is_finite() && args.seconds > 0.0 && args.connections > 0 {
        Duration::from_secs_f64(args.seconds)
    } else {
        return Err("--seconds and --connections must be above zero".into());
    };
    let scratch = tempfile::Builder::new().prefix("forebay-demo-").tempdir().map_err(Failure::from)?;
    let mut demo = Demonstration::start(scratch.path(), seconds, args.connections)?;
    demo.drive_all()?;
    let verdict = demo.count_what_survived()?;
    demo.child.stop()?;
    demo.print(&verdict);
    Ok(if verdict.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line of the table at the end.
struct Line {
    route: &'static str,
    way: &'static str,
    report: Results,
    crashed: bool,
}

struct Demonstration<'a> {
    folder: &'a Path,
    seconds: Duration,
    connections: usize,
    child: Child,
    lines: Vec<Line>,
    acknowledged: Acknowledged,
}

/// How many acknowledged rows the database contains.
struct DemoVerdict {
    acknowledged: usize,
    missing: usize,
    check: String,
    check_is_clean: bool,
}

impl DemoVerdict {
    fn is_clean(&self) -> bool {
        self.missing == 0 && self.check_is_clean && self.acknowledged > 0
    }
}

impl<'a> Demonstration<'a> {
    fn start(folder: &'a Path, seconds: Duration, connections: usize) -> Result<Demonstration<'a>, Failure> {
        std::fs::write(folder.join("codes.toml"), forebay_config::BUNDLED[0].1).map_err(Failure::from)?;
        let child = Child::start(folder)?;
        say!("serving the codes example on http://{} from {}", child.address, folder.display());
        Ok(Demonstration {
            folder,
            seconds,
            connections,
            child,
            lines: Vec::new(),
            acknowledged: Acknowledged::default(),
        })
    }

    fn drive_all(&mut self) -> Result<(), Failure> {
        self.read("GET /simple", "constant", Reading::get("/simple"))?;
        self.read("PATCH /update-something", "Rust handler, 32 KB back", Reading::update_something())?;
        self.write("POST /code", "SQL, one commit each", "/code", "codes", false)?;
        self.write("POST /code-fast", "memory, unique code → log → drain", "/code-fast", "codes", false)?;
        self.write("POST /code-ultra-fast", "the same, killed midway", "/code-ultra-fast", "ucodes", true)?;
        say!("killed -9 midway; starting again on the same folder");
        self.child = Child::start(self.folder)?;
        self.write(
            "POST /code-ultra-fast",
            "memory, UUID key → log → drain",
            "/code-ultra-fast",
            "ucodes",
            false,
        )?;
        self.read("GET /code-fast", "memory, random row", Reading::get("/code-fast"))?;
        let by_key = Reading::by_key("/code-ultra-fast/", self.acknowledged.some("ucodes"));
        self.read("GET /code-ultra-fast/{id}", "memory, by key", by_key)?;
        self.read("GET /code-v4", "SQL, one look-up", Reading::get("/code-v4?max=10000"))?;
        self.read("GET /code-v3", "SQL, two look-ups", Reading::get("/code-v3"))?;
        self.read("GET /code-v2", "SQL, count and look up: O(n)", Reading::get("/code-v2"))?;
        self.read("GET /code-v1", "SQL, ORDER BY random(): O(n)", Reading::get("/code-v1"))
    }

    fn read(&mut self, route: &'static str, way: &'static str, mut traffic: Reading) -> Result<(), Failure> {
        let report = self.drive(&mut traffic)?;
        self.lines.push(Line { route, way, report, crashed: false });
        Ok(())
    }

    fn write(
        &mut self,
        route: &'static str,
        way: &'static str,
        path: &str,
        table: &'static str,
        crash: bool,
    ) -> Result<(), Failure> {
        let mut traffic = Counting::post(path);
        let killer = crash.then(|| self.child.kill_after(self.seconds / 2));
        let report = self.drive(&mut traffic)?;
        if let Some(killer) = killer {
            killer.join().map_err(|_| "the killing thread panicked")??;
        }
        self.acknowledged.add(table, traffic.into_acknowledged());
        self.lines.push(Line { route, way, report, crashed: crash });
        Ok(())
    }

    fn drive(&self, traffic: &mut impl Traffic) -> Result<Results, Failure> {
        let mut settings = Settings::new(self.child.address, Stop::After(self.seconds));
        settings.connections = self.connections;
        forebay_load::run(&settings, traffic).map_err(Failure::from)
    }

    fn count_what_survived(&self) -> Result<DemoVerdict, Failure> {
        say!("draining, then comparing");
        let admin = self.child.admin();
        admin.post("/drain/finish", &[])?;
        let check = admin.post("/verify", &[])?;
        let tables = check["checks"].as_array().cloned().unwrap_or_default();
        let sum = |key: &str| tables.iter().filter_map(|table| table[key].as_u64()).sum::<u64>();
        let faults = sum("missing_in_database") + sum("missing_in_memory") + sum("different") + sum("dead");
        let mut missing = 0;
        for (table, ids) in self.acknowledged.tables() {
            let stored = self.stored_ids(table)?;
            missing += ids.iter().filter(|id| !stored.contains(id.as_str())).count();
        }
        Ok(DemoVerdict {
            acknowledged: self.acknowledged.count(),
            missing,
            check: format!("{} rows compared, {faults} differences", sum("compared")),
            check_is_clean: faults == 0 && !tables.is_empty(),
        })
    }

    /// The keys in the database, read by plain SQL.
    fn stored_ids(&self, table: &str) -> Result<HashSet<String>, Failure> {
        let url = format!("sqlite:{}", self.folder.join("codes.db").display());
        let store = Store::open(&url, Options { statement_timeout_ms: 60_000, ..Options::default() })
            .map_err(Failure::from)?;
        runtime()?.block_on(async {
            let statement = store.prepare(&format!("SELECT id FROM {table}")).await.map_err(Failure::from)?;
            let rows = store.run(&statement, Vec::new()).await.map_err(Failure::from)?;
            let text = |row: &[Value]| match &row[0] {
                Value::Bigint(id) => id.to_string(),
                Value::Uuid(id) => id.to_string(),
                other => format!("{other:?}"),
            };
            Ok(rows.iter().map(text).collect())
        })
    }

    fn print(&self, verdict: &DemoVerdict) {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["route", "what answers", "requests/s", "p50 ms", "p99 ms", "answers"]);
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        for line in &self.lines {
            let mut answers: Vec<_> =
                line.report.statuses.iter().map(|(status, count)| format!("{status} × {count}")).collect();
            if line.crashed {
                answers.push("then killed".into());
            }
            table.add_row([
                Cell::new(line.route),
                Cell::new(line.way),
                right(format!("{:.0}", line.report.requests.rate_per_s)),
                right(format!("{:.2}", line.report.latency_ms.percentile_ms(50.0))),
                right(format!("{:.2}", line.report.latency_ms.percentile_ms(99.0))),
                Cell::new(answers.join(", ")),
            ]);
        }
        answer!("{table}");
        answer!("client and server shared this machine; {} connections, not pipelined", self.connections);
        answer!(
            "{} writes acknowledged, one kill -9 among them: {} missing in SQLite afterwards",
            verdict.acknowledged,
            verdict.missing
        );
        answer!("verify: {}", verdict.check);
    }
}
