//! What a person sees of a real server under load: its dashboard ([`dashboard`]); the verdict of
//! `--monitor` on a real `forebay serve`, and the page of that run in a real browser.
//! `crates/load/tests/report_browser.rs` tests the page's layout.

mod chromium;
mod dashboard;

use forebay_load::monitor::Monitor;
use forebay_load::report::{Extras, page};
use forebay_load::results::{Limit, Role};
use forebay_load::{Fixed, Settings, Stop, run};
use forebay_tests::{Folder, Start, binary, example};
use std::process::Command;
use std::time::Duration;

/// Every request is a committed insert into one SQLite file: the requests wait for the store, however busy
/// the machine is.
#[test]
fn a_record_store_that_takes_no_more() {
    let folder = Folder::new();
    let server = Start::new(binary(), &folder, &example("codes.toml")).start();
    server.wait_healthy();
    let mut settings = Settings::new(server.address, Stop::After(Duration::from_secs(5)));
    settings.connections = 64;
    let monitor =
        Monitor::start(&[format!("http://{}", server.admin)], "").expect("the admin listener answers");
    let mut results = run(&settings, &mut Fixed::new("POST", "/code", None)).expect("it runs");
    monitor.complete(&mut results);
    assert_eq!(results.status(201), results.requests.completed, "{results}");
    let verdict = results.verdict.clone().expect("a verdict");
    if verdict.limit == Limit::StolenCpu {
        // This verdict is true of the machine, and hides the caused limit.
        eprintln!("{}", verdict.why);
        return;
    }
    assert_eq!(verdict.limit, Limit::Database, "{}\n{:#?}", verdict.why, results.hosts);
    let watched =
        results.hosts.iter().find(|host| host.role == Role::Server).expect("the server was watched");
    let counted: f64 = watched.seconds.iter().filter_map(|second| second.extra.get("requests_per_s")).sum();
    assert!(counted > 0.0 && watched.seconds.iter().all(|second| second.connections <= 64), "{watched:#?}");

    let file = folder.write("report.html", &page(&results, &Extras::default()));
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .args(["--dump-dom", &format!("file://{}", file.display())])
        .output()
        .expect("chromium (scripts/install-tools installs it)");
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(dom.contains(">database</p>") && dom.matches("<svg").count() >= 14, "{log}");
    assert!(!log.contains("CONSOLE"), "{log}");
}
