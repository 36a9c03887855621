//! Servers that leave the drain and the jobs to `forebay drain --forever`, and workers that are killed.

use super::writers::Writers;
use super::{CONFIG, Fixture};
use forebay_tests::wait_for;
use forebay_topology::{Flavour, Topology};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::process::Child;

const SOME: usize = 200;

const JOB: &str = "
[[job]]
name = \"tick\"
every = \"200ms\"
sql = \"INSERT INTO notes (token) VALUES ('tick')\"
";

/// A process of `forebay drain --forever`; killed, as by a crash, when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // The error means that the process has already ended.
        let _ = self.0.kill();
        self.0.wait().expect("a child can be waited for");
    }
}

/// `/ready` shows the workers. A missing worker is reported there, and in one log line.
#[test]
fn a_server_that_leaves_the_drain_to_others_says_whether_there_are_any() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let server = fixture.start("a", "sync").argument("--without").argument("drain").start();
    server.wait_healthy();
    let ready = || server.admin("GET", "/ready").json();
    let has_none = || {
        let told = ready();
        let is_told = told["conditions"][0]["state"] == "no worker";
        (is_told && told["status"] == "degraded" && told["workers"] == json!([])).then_some(())
    };
    wait_for("it is told that there is no worker", has_none);
    let worker = Worker(fixture.start("b", "sync").argument("--forever").spawn("drain"));
    let has_one = || {
        let told = ready();
        let workers = told["workers"].as_array()?;
        let is_it =
            workers.len() == 1 && workers[0].as_str()?.ends_with(&format!("(process {})", worker.0.id()));
        (is_it && told["conditions"] == json!([])).then_some(())
    };
    wait_for("it is told who drains", has_one);
    drop(worker);
    wait_for("it is told that there is none any more", has_none);
    // One line when the condition began, one when it ended, and one when it began again.
    server.wait_for_lines(3, "no worker");
}

/// Nothing is drained and no job runs before there is a worker. Each of two killed workers is followed by
/// another; every acknowledged row is in the database exactly once.
#[test]
fn a_worker_that_is_killed_is_followed_by_another() {
    let mut fixture = Fixture::new(Topology::Single, Flavour::Redis);
    fixture.config = fixture.folder.write("worker.toml", &format!("{CONFIG}{JOB}"));
    let server = fixture.start("a", "sync").argument("--without").argument("drain,jobs").start();
    server.wait_healthy();
    let archive = fixture.stores.archive(&fixture.folder);
    let stored = || archive.number("SELECT (SELECT count(*) FROM plain) + (SELECT count(*) FROM tokens)");
    let ticks = || archive.number("SELECT count(*) FROM notes");
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    let state = server.drain_state();
    assert_eq!((&state["status"], &state["paused"]), (&"elsewhere".into(), &false.into()), "{state}");
    assert!(state["backlog_rows"].as_u64() >= Some(SOME as u64), "{state}");
    wait_for("the backlog is counted", || {
        let metrics = server.admin("GET", "/metrics");
        let rows =
            metrics.text().lines().find_map(|line| line.strip_prefix("forebay_drain_backlog_rows "))?;
        (rows.parse::<f64>().ok()? >= SOME as f64).then_some(())
    });
    for request in ["/drain/resume", "/drain/pause"] {
        let refused = server.admin("POST", request);
        assert!(refused.status == 409 && refused.text().contains("--without drain"), "{refused:?}");
    }
    assert_eq!(server.admin("GET", "/jobs").expect(200)["scheduled"][0]["state"], "elsewhere");
    assert_eq!((stored(), ticks()), (0, 0));
    // On the folder of the server, whose address file must stay.
    let start_worker = |name: &str| Worker(fixture.start(name, "sync").argument("--forever").spawn("drain"));
    let mut worker = start_worker("a");
    for name in ["b", "c"] {
        let before = (stored(), ticks());
        wait_for("a worker drains and runs the job", || {
            (stored() > before.0 && ticks() > before.1).then_some(())
        });
        let next = start_worker(name);
        writers.wait_for_more(SOME);
        drop(std::mem::replace(&mut worker, next));
        writers.wait_for_more(SOME);
    }
    let told = writers.stop();
    server.admin("POST", "/drain/finish").expect(200);
    fixture.assert_drained(&server, &told);
    assert!(stored() as usize >= told.count(), "{} of {} are stored", stored(), told.count());
    assert!(fixture.folder.path().join("a/admin.address").exists());
    assert!(fixture.folder.path().join("c/worker.address").exists());
    // A worker that gets SIGTERM drains the remaining rows, and exits with 0.
    kill_process(Pid::from_child(&worker.0), Signal::TERM).expect("it runs");
    assert!(worker.0.wait().expect("a child can be waited for").success());
    assert!(!fixture.folder.path().join("c/worker.address").exists());
}
