//! A history of runs, and the output of `forebay runs`.

use crate::{HI, ended, serve};
use std::path::Path;
use std::time::Duration;

/// Makes one short run with these labels, stored in the folder.
fn keep(folder: &str, target: &str, rate: &str, labels: &[&str]) {
    let labels = labels.iter().flat_map(|label| ["--label", label]);
    let how = ["load", "--history", folder, "-R", rate, "-d", "1s", "-w", "1"];
    let (code, _, error) = ended(&how.into_iter().chain(labels).chain([target]).collect::<Vec<_>>());
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("kept as "), "{error}");
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn a_history_of_runs_side_by_side() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = folder.path().join("history");
    let shown = history.display().to_string();
    let target = format!("http://{}/", serve(HI, Duration::ZERO));
    keep(&shown, &target, "50", &["size=small", "profile=low"]);
    keep(&shown, &target, "100", &["size=small", "profile=high"]);
    keep(&shown, &target, "50", &["size=large", "profile=low"]);
    assert_eq!(files(&history), 3);

    let (code, out, error) = ended(&["runs", &shown]);
    assert_eq!(code, 0, "{error}");
    for expected in
        ["profile=low size=small", "profile=high size=small", "All against run 1, run-20", "rate met"]
    {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    assert!(out.contains("! 2: The two runs differ in rate asked for: 50 before, 100 now."), "{out}");
    let (code, out, error) = ended(&["runs", &shown, "--against", "2"]);
    assert!(code == 0 && out.contains("All against run 2"), "{error}{out}");

    let (code, out, error) = ended(&["runs", &shown, "--rows", "size", "--columns", "profile"]);
    assert_eq!(code, 0, "{error}");
    let row = |name: &str| {
        let line = out.lines().find(|line| line.starts_with(&format!("│ {name} "))).expect("a row");
        line.split(['│', '┆']).map(str::trim).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(out.contains("Req/Sec: size × profile"), "{out}");
    assert_eq!(row("small")[2..4], ["50", "100"], "{out}");
    assert_eq!(row("large")[2..4], ["50", ""], "{out}");

    for (arguments, code, expected) in [
        (&["runs", &shown, "--against", "4"][..], 2, "--against 4: there are 3 runs"),
        (&["runs", &shown, "--rows", "size", "--columns", "colour"], 2, "no run has a label `colour`"),
        (&["runs", "/nothing/there.json"], 1, "/nothing/there.json"),
        (&["load", "--label", "small", &target], 2, "--label `small`: write NAME=VALUE"),
        (&["load", "--ramp", "1s", "--find-max", "p99<1s", &target], 2, "leave --ramp out"),
        (&["load", "--history", "/proc/none", &target], 2, "--history: cannot make /proc/none"),
    ] {
        let (ended_with, out, error) = ended(arguments);
        assert!(ended_with == code && error.contains(expected), "{arguments:?}: {ended_with} {error}{out}");
    }
}
