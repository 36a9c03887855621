//! The load plans of the examples, run against the examples: the plan must expect every answer.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server that ends with the test.
struct Served {
    server: Child,
    url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server may have ended by itself; the test has then failed for that reason.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn forebay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn serve(name: &str, data: &Path) -> Served {
    let mut command = forebay();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).arg(example(name));
    let mut server = command.current_dir(data).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines();
    let url = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("listening on ").map(|(_, url)| url.trim().to_owned()));
    // Reads the rest of its output, so that the server never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    Served { server, url: url.expect("it listens") }
}

/// Generates the rows that a plan requests, and waits until one of them is served.
fn fill(served: &Served, generate: &str, path: &str) {
    ureq::post(format!("{}{generate}", served.url)).send_empty().expect("it is begun");
    let is_there = || ureq::get(format!("{}{path}", served.url)).call().is_ok();
    // Three minutes at most, for a machine that is busy.
    let found = (0..1_800).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        is_there()
    });
    assert!(found, "{path} is not there");
}

/// Sends two hundred requests of a plan; every endpoint must be requested and answer as the plan expects. A
/// plan with stages gets a rate instead.
fn hold(plan: &str, served: &Served) {
    let mut command = forebay();
    command.arg("load");
    if std::fs::read_to_string(example(plan)).expect("a plan").contains("[[stage]]") {
        command.args(["-R", "200"]);
    }
    command.args(["-c", "4", "-a", "200", "--warmup", "0s", "--json", "-", "--plan"]).arg(example(plan));
    let output = command.arg(&served.url).output().expect("the binary runs");
    assert!(output.status.success(), "{plan}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let from = text.find('{').expect("a report in JSON");
    let mut reports = serde_json::Deserializer::from_str(&text[from..]).into_iter::<serde_json::Value>();
    let report = reports.next().expect("a report").expect("JSON");
    let endpoints = report["endpoints"].as_array().expect("endpoints");
    assert!(endpoints.len() > 1, "{plan}: {endpoints:?}");
    for endpoint in endpoints {
        let requests = &endpoint["requests"];
        assert!(requests["completed"].as_u64() > Some(0), "{plan}: {endpoint}");
        assert_eq!(requests["unexpected"], 0, "{plan}: {endpoint}");
    }
}

#[test]
fn usages() {
    let data = tempfile::tempdir().expect("a folder");
    let mut seed = forebay();
    seed.args(["seed", "usages", "-r", "1000", "--data"])
        .arg(data.path())
        .arg("-c")
        .arg(example("usages.toml"));
    let seeded = seed.current_dir(data.path()).output().expect("the binary runs");
    assert!(seeded.status.success(), "{seeded:?}");
    hold("usages.load.toml", &serve("usages.toml", data.path()));
}

#[test]
fn positions() {
    let data = tempfile::tempdir().expect("a folder");
    hold("positions.load.toml", &serve("positions.toml", data.path()));
}

#[test]
fn links() {
    let data = tempfile::tempdir().expect("a folder");
    let served = serve("links.toml", data.path());
    let link = serde_json::json!({ "url": "https://example.com/today", "alias": "today" });
    let answer = ureq::post(format!("{}/links", served.url)).send_json(&link).expect("a new link");
    assert_eq!(answer.status(), 201);
    hold("links.load.toml", &served);
}

#[test]
fn accounts() {
    let there = "/accounts/06f40771-6460-479a-a47c-177473e240b5";
    for example in ["accounts.toml", "accounts-hot.toml"] {
        let data = tempfile::tempdir().expect("a folder");
        let served = serve(example, data.path());
        fill(&served, "/accounts/generate-test-data?size=2000", there);
        hold("accounts.load.toml", &served);
    }
}

#[test]
fn codes() {
    let data = tempfile::tempdir().expect("a folder");
    hold("codes.load.toml", &serve("codes.toml", data.path()));
}

#[test]
fn items() {
    let data = tempfile::tempdir().expect("a folder");
    let served = serve("items.toml", data.path());
    fill(&served, "/items/generate?size=1000", "/items/200");
    hold("items.load.toml", &served);
}

#[test]
fn every_plan_is_held_against_its_example() {
    let this = include_str!("plans.rs");
    for entry in std::fs::read_dir(example("")).expect("the examples") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(!name.ends_with(".load.toml") || this.contains(&format!("hold(\"{name}\"")), "{name}");
    }
}
