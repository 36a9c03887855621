//! Agents as processes: a run over several, one of them killed, the controller killed.

use crate::{HI, ended, forebay, serve, shown};
use forebay_tests::{Folder, Start, binary, example};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that does not outlive its test.
pub struct Running {
    child: Child,
    pub address: String,
}

impl Running {
    /// Kills it (SIGKILL), as if its machine were gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn agent(folder: &Path) -> Running {
    agent_in(&[], "127.0.0.1:0", folder)
}

/// An agent that is started by another program, such as `ip netns exec NAME`.
pub fn agent_in(before: &[String], place: &str, folder: &Path) -> Running {
    let folder = folder.display().to_string();
    let mut command = forebay(&["agent", "--listen", place, "--token", "secret", "--folder", &folder]);
    if let Some((program, rest)) = before.split_first() {
        let mut other = Command::new(program);
        other.args(rest).arg(command.get_program()).args(command.get_args());
        other.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command = other;
    }
    let mut child = command.spawn().expect("the binary runs");
    let mut line = String::new();
    let out = child.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it says where it listens");
    let address = line.trim().strip_prefix("agent on ").expect("its address").to_owned();
    Running { child, address }
}

#[test]
fn two_agents_are_one_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let agents = ["a", "b"].map(|name| agent(&folder.path().join(name)));
    let places = format!("{},{}", agents[0].address, agents[1].address);
    let target = format!("http://{}/", serve(HI, Duration::ZERO));
    let run = ["load", "--agents", &places, "-a", "101", "-c", "4", "--json", "-", &target];
    let (code, out, error) = ended(&[&run[..], &["--token", "secret"]].concat());
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&json["requests"]["completed"], &json["complete"]), (&101.into(), &true.into()));
    assert_eq!(json["agents"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["hosts"].as_array().map(Vec::len), Some(2), "their machines, not the controller's");
    assert!(!out.contains("secret"), "the token stands in a report");
    let (code, _, error) = ended(&[&run[..], &["--token", "guessed"]].concat());
    assert!(code == 1 && error.contains("wrong token") && error.lines().count() == 1, "{code}: {error}");
}

#[test]
fn ten_thousand_connections_from_one_agent() {
    let folder = Folder::new();
    let server = Start::new(binary(), &folder, &example("codes.toml")).start();
    let agent = agent(&folder.path().join("agent"));
    let target = format!("http://{}/simple", server.address);
    let how =
        ["load", "--agents", &agent.address, "--token", "secret", "-c", "10000", "-a", "30000", "-t", "120s"];
    let (code, out, error) = ended(&[&how[..], &["-w", "1", "--json", "-", &target]].concat());
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&json["connects"]["made"], &json["connects"]["open_max"]), (&10_000.into(), &10_000.into()));
    assert_eq!((&json["requests"]["completed"], &json["statuses"]["200"]), (&30_000.into(), &30_000.into()));
}

#[test]
fn a_killed_agent_leaves_what_it_delivered() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut agents = ["a", "b"].map(|name| agent(&folder.path().join(name)));
    let places = format!("{},{}", agents[0].address, agents[1].address);
    let target = format!("http://{}/", serve(HI, Duration::from_millis(1)));
    let run =
        ["load", "--agents", &places, "--token", "secret", "-d", "10s", "-c", "4", "--json", "-", &target];
    let controller = forebay(&run).spawn().expect("it runs");
    wait_for_seconds(&folder.path().join("b"), 2);
    agents[1].child.kill().expect("killed");
    let (code, out, error) = shown(controller.wait_with_output().expect("it ends"));
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["complete"], false);
    let why = json["partial_reason"].as_str().unwrap_or_default();
    assert!(why.contains(&agents[1].address), "{why}");
    let [first, second] = [&json["agents"][0], &json["agents"][1]];
    assert_eq!((&first["complete"], &second["complete"]), (&true.into(), &false.into()));
    assert!(second["completed"].as_u64() > Some(0), "{second}");
    let sum = first["completed"].as_u64().zip(second["completed"].as_u64()).map(|(a, b)| a + b);
    assert_eq!(json["requests"]["completed"].as_u64(), sum);
    assert_eq!(json["latency_ms"]["count"].as_u64(), sum);
    // Its own file still contains the seconds that it reported.
    assert!(seconds_kept(&folder.path().join("b")) >= 2);
}

#[test]
fn a_killed_controller_stops_its_agents_which_keep_what_they_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = agent(folder.path());
    let target = format!("http://{}/", serve(HI, Duration::from_millis(1)));
    let run = ["load", "--agents", &agent.address, "--token", "secret", "-d", "10m", "-c", "2", &target];
    let mut controller = forebay(&run).spawn().expect("it runs");
    wait_for_seconds(folder.path(), 1);
    controller.kill().expect("killed");
    controller.wait().expect("it ends");
    let results = until(|| kept(folder.path(), "json"));
    let json: Value = serde_json::from_str(&results).expect("JSON");
    assert_eq!(json["complete"], false);
    assert!(json["requests"]["completed"].as_u64() > Some(0));
}

/// The text of the file with that extension, if it exists.
fn kept(folder: &Path, extension: &str) -> Option<String> {
    let mut files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let path = files.find(|path| path.extension().is_some_and(|own| own == extension))?;
    fs::read_to_string(path).ok()
}

fn seconds_kept(folder: &Path) -> usize {
    kept(folder, "jsonl").map_or(0, |text| text.lines().count())
}

#[track_caller]
fn wait_for_seconds(folder: &Path, count: usize) {
    until(|| (seconds_kept(folder) >= count).then_some(()));
}

/// Repeats `look` until it returns a value.
#[track_caller]
fn until<T>(look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(50));
    }
}
