//! The dashboard in a real browser: it shows the figures of `/metrics`, and its controls work.
//!
//! With `FOREBAY_SCREENSHOTS=folder` the load runs for a minute, and screenshots of the page are
//! written there.

use crate::chromium::Tab;
use forebay_tests::{Folder, Server, Start, binary, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const CONFIG: &str = r#"
[table.notes]
columns = { id = "serial key", text = "text(40)" }

[[endpoint]]
route = "POST /notes"
insert = "notes"
values = { text = "$text" }

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[endpoint]]
route = "GET /search"
sql = "SELECT id, text FROM notes WHERE text LIKE '%' || $q || '%' ORDER BY id LIMIT 20"

[[endpoint]]
route = "GET /latest"
sql = "SELECT count(*) AS count, max(id) AS latest FROM notes"
returns = "one"
cache = { local = "1s" }
"#;

/// All elements that show a series: its name, and the value as it was scraped.
const SHOWN: &str = "[...document.querySelectorAll('[data-series]')].map(({ dataset }) => [dataset.series, Number(dataset.value)])";
const SCRAPES: &str = "Number(document.body?.dataset.scrapes ?? 0)";

fn start(folder: &Folder) -> Server {
    let file = folder.write("dashboard.toml", CONFIG);
    let server = Start::new(binary(), folder, &file).start();
    server.wait_healthy();
    server
}

fn open(server: &Server, width: u32) -> Tab {
    let mut tab = Tab::open(&format!("http://{}/", server.admin), width);
    tab.wait_until(&format!("{SCRAPES} > 1"));
    tab
}

/// The current values of `/metrics`, by series.
fn scraped(server: &Server) -> BTreeMap<String, f64> {
    let answer = server.admin("GET", "/metrics");
    let samples = answer.text().lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            (series.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn shown(tab: &mut Tab) -> BTreeMap<String, f64> {
    let all: Vec<(String, f64)> = serde_json::from_value(tab.eval(SHOWN)).expect("pairs");
    all.into_iter().collect()
}

fn is_counter(series: &str) -> bool {
    let name = series.split('{').next().expect("a name");
    name.ends_with("_total") || name.ends_with("_count")
}

fn load(server: &Server, arguments: &[&str], path: &str) -> Child {
    let mut command = Command::new(binary());
    command.arg("load").args(arguments).arg(format!("http://{}{path}", server.address));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the load tester runs")
}

fn screenshots() -> Option<PathBuf> {
    std::env::var_os("FOREBAY_SCREENSHOTS").map(PathBuf::from)
}

#[test]
fn its_values_are_those_of_metrics_under_load_and_after() {
    let folder = Folder::new();
    let server = start(&folder);
    server.client().post_json("/notes", r#"{"text":"first"}"#).expect(201);
    let seconds = if screenshots().is_some() { "100s" } else { "12s" };
    let mut loads = vec![
        load(&server, &["-c", "4", "-R", "400", "-d", seconds], "/notes/1"),
        load(
            &server,
            &["-c", "4", "-R", "300", "-d", seconds, "-m", "POST", "-b", r#"{"text":"a note"}"#],
            "/notes",
        ),
        load(&server, &["-c", "2", "-R", "60", "-d", seconds], "/search?q=note"),
        load(&server, &["-c", "2", "-R", "150", "-d", seconds], "/latest"),
        load(&server, &["-c", "1", "-R", "5", "-d", seconds], "/nowhere"),
    ];
    let mut tab = open(&server, 1440);
    for _ in 0..2 {
        let before = scraped(&server);
        let count = tab.eval(SCRAPES).as_u64().expect("a number");
        // The scrape after the next one begins after `before` was read.
        tab.wait_until(&format!("{SCRAPES} >= {}", count + 2));
        let during = shown(&mut tab);
        let after = scraped(&server);
        let counters: Vec<_> = during.iter().filter(|(series, _)| is_counter(series)).collect();
        assert!(counters.len() > 8, "{during:#?}");
        for (series, value) in counters {
            let least = before.get(series).copied().unwrap_or_default();
            assert!((least..=after[series]).contains(value), "{series}: {least} {value} {}", after[series]);
        }
        let received = "forebay_http_requests_received_total";
        assert!(during[received] > before[received], "there is load");
    }
    if let Some(folder) = screenshots() {
        std::thread::sleep(std::time::Duration::from_secs(60));
        pictures(&mut tab, &folder);
    }
    for load in &mut loads {
        assert!(load.wait().expect("it ends").success());
    }
    server.drain();
    let changes = |series: &str| series.starts_with("process_");
    let (now, told) = wait_for("the page shows what is told at rest", || {
        let (now, told) = (shown(&mut tab), scraped(&server));
        let equal = |(series, value): (&String, &f64)| changes(series) || told.get(series) == Some(value);
        now.iter().all(equal).then_some((now, told))
    });
    for part in
        ["requests_received_total", "waiting", "lag_seconds", "backlog_bytes", "memory_used", "cache_hits"]
    {
        assert!(now.keys().any(|series| series.contains(part)), "{part} is not shown: {now:#?}");
    }
    for part in [
        "request_duration_seconds_count{",
        "forebay_statements_total{",
        "forebay_statements_identical_in_flight{",
        "forebay_table_rows{",
        "forebay_table_used_bytes{",
    ] {
        let of = |all: &BTreeMap<String, f64>| {
            all.keys().filter(|series| series.starts_with(part) || series.contains(part)).count()
        };
        assert_eq!(of(&now), of(&told), "every {part} is shown: {now:#?}");
    }
    assert_eq!(tab.complaints, Vec::<String>::new());
}

#[test]
fn percentiles_are_those_of_prometheus_and_a_counter_that_begins_anew_counts() {
    let folder = Folder::new();
    let server = start(&folder);
    let mut tab = open(&server, 1440);
    let found = tab.eval(
        r#"import("/dashboard/metrics.js").then(({ Scrape, quantile, increase }) => {
            const text = 'a_total{x="1\\"}2"} 7\nb 5e-1\n# EOF\n';
            const [now, before] = [new Scrape(text, 2000), new Scrape('a_total{x="1\\"}2"} 9\n', 1000)];
            const spread = [[0.5, 10], [1, 30], [Infinity, 40]];
            return [now.family("a_total")[0].labels.x, now.value("b"), increase('a_total{x="1\\"}2"}', now, before),
                quantile(0.5, spread), quantile(0.1, spread), quantile(0.99, spread), Number.isNaN(quantile(0.5, []))];
        })"#,
    );
    assert_eq!(found, serde_json::json!(["1\"}2", 0.5, 7, 0.75, 0.2, 1, true]));
}

#[test]
fn an_operator_steers_the_drain_and_replays_a_dead_letter_by_the_keyboard() {
    let folder = Folder::new();
    let server = start(&folder);
    let mut tab = open(&server, 390);
    tab.tab_to("drain-pause");
    tab.press("Enter");
    tab.wait_until("document.getElementById('drain-status').textContent === 'paused'");
    assert_eq!(server.drain_state()["paused"], true);
    for _ in 0..3 {
        server.client().post_json("/notes", r#"{"text":"a"}"#).expect(201);
    }
    tab.wait_until(
        "Number(document.querySelector('[data-series=forebay_drain_backlog_bytes]').dataset.value) > 0",
    );
    tab.wait_until(
        "Number(document.querySelector('[data-series=forebay_drain_lag_seconds]').dataset.value) > 0",
    );
    let database = rusqlite::Connection::open(folder.database()).expect("a file");
    database
        .execute_batch("CREATE TRIGGER no BEFORE INSERT ON notes WHEN NEW.id = 2 BEGIN SELECT raise(ABORT, 'not this one'); END")
        .expect("a trigger can be made");
    tab.tab_to("drain-pause");
    tab.press("Enter");
    tab.wait_until("document.getElementById('letters').textContent.includes('not this one')");
    tab.wait_until("document.getElementById('conditions').textContent.includes('dead letters')");
    assert_eq!(server.client().get("/notes/2").status, 404);
    database.execute_batch("DROP TRIGGER no").expect("it is there");
    tab.tab_to("letters-replay");
    tab.press("Enter");
    tab.wait_until("document.getElementById('replay').open");
    assert_eq!(tab.eval("document.activeElement.textContent"), "Cancel", "nothing happens by a second Enter");
    tab.eval("document.querySelector('#replay button[value=replay]').focus()");
    tab.press("Enter");
    tab.wait_until("document.getElementById('letters-said').textContent === '1 applied.'");
    tab.wait_until("document.getElementById('letters-count').textContent === '0'");
    server.client().get("/notes/2").expect(200);
    assert_eq!(tab.complaints, Vec::<String>::new());
}

#[test]
fn it_fits_phones_and_screens_dark_and_light_and_asks_nobody_else() {
    let folder = Folder::new();
    let server = start(&folder);
    let mut tab = open(&server, 390);
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        tab.prefer(scheme);
        for width in [390, 1440] {
            tab.resize(width, 900);
            tab.wait_until(&format!("document.documentElement.clientWidth === {width}"));
            assert_eq!(tab.eval("document.documentElement.scrollWidth"), width, "it scrolls sideways");
        }
        grounds.push(tab.eval("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(grounds[0], grounds[1]);
    let unnamed = "[...document.querySelectorAll('button, svg[role=img], section, .scroll')].filter(of =>
        !of.textContent.trim() && !of.ariaLabel && !of.getAttribute('aria-labelledby')).length";
    assert_eq!(tab.eval(unnamed), 0);
    let asked: Vec<String> = serde_json::from_value(
        tab.eval("performance.getEntriesByType('resource').map(({ name }) => new URL(name).origin)"),
    )
    .expect("a list");
    assert!(!asked.is_empty() && asked.iter().all(|origin| *origin == format!("http://{}", server.admin)));
    assert_eq!(tab.complaints, Vec::<String>::new());
    let Value::Bool(inline) = tab.eval(
        "new Promise(done => { const made = document.createElement('script'); made.textContent = 'window.injected = true'; \
         document.body.append(made); done(window.injected === true); })",
    ) else {
        panic!("a boolean")
    };
    assert!(!inline, "a script that somebody slips into the page runs");
}

fn pictures(tab: &mut Tab, folder: &std::path::Path) {
    for scheme in ["light", "dark"] {
        for width in [1440, 390] {
            tab.prefer(scheme);
            tab.resize(width, 900);
            // The next scrape redraws the charts for their width.
            let count = tab.eval(SCRAPES).as_u64().expect("a number");
            tab.wait_until(&format!("{SCRAPES} > {}", count + 1));
            let height = tab.eval("document.documentElement.scrollHeight").as_u64().expect("a number");
            tab.resize(width, u32::try_from(height).expect("a page"));
            let file = folder.join(format!("dashboard-{width}-{scheme}.png"));
            std::fs::write(file, tab.picture()).expect("the folder is there");
        }
    }
}
