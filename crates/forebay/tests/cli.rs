//! Mistakes on the command line. This test also makes `cargo test --workspace` build the binary for all
//! other tests, with the same features as the rest of the workspace.

use std::path::Path;
use std::process::{Command, Output};

fn forebay(arguments: &[&str]) -> Output {
    forebay_in(Path::new("."), arguments)
}

fn forebay_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder).args(arguments).output().expect("the binary runs")
}

#[test]
fn it_says_which_version_it_is() {
    let output = forebay(&["--version"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        concat!("forebay ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn what_it_does_not_know_is_named() {
    for (arguments, named) in [
        (&["srve"][..], "'srve'"),
        (&["serve", "--lisen", "127.0.0.1:0"], "'--lisen'"),
        (&["seed"], "<TABLE>"),
        (&["check", "no-such-file.toml"], "no-such-file.toml"),
        (&["check", "-c", "no-such-file.toml"], "no-such-file.toml"),
        (&["serve", "a.toml", "-c", "b.toml"], "cannot be used with"),
        (&["serve", "--example", "nothing"], "codes, accounts"),
    ] {
        let output = forebay(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(named), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn without_a_config_every_command_says_what_it_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let looked_for = folder.path().canonicalize().unwrap().join("forebay.toml").display().to_string();
    for arguments in
        [&["serve"][..], &["check"], &["verify"], &["drain"], &["warm"], &["seed", "codes", "-r", "1"]]
    {
        let output = forebay_in(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(&looked_for) && said.contains("-c FILE"), "{arguments:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn a_config_is_named_in_four_ways() {
    let folder = tempfile::tempdir().unwrap();
    let codes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/codes.toml");
    for name in ["forebay.toml", "other.toml"] {
        std::fs::copy(&codes, folder.path().join(name)).unwrap();
    }
    let explained = |arguments: &[&str]| {
        let output = forebay_in(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let default = explained(&["check"]);
    assert!(default.contains("/code-ultra-fast/{id}"), "{default}");
    for named in
        [&["check", "other.toml"][..], &["check", "-c", "other.toml"], &["check", "--example", "codes"]]
    {
        assert_eq!(explained(named), default, "{named:?}");
    }
}

/// Only the server that has the log open can drain it.
#[test]
fn what_only_the_server_of_an_embedded_tier_can_do_is_not_left_to_others() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, named) in [
        (&["drain", "--forever"][..], "drain --forever drains a memory tier on Redis or Valkey"),
        (
            &["serve", "--without", "jobs,drain"],
            "serve --without drain needs a memory tier on Redis or Valkey",
        ),
        (&["serve", "--without", "clients"], "[possible values: drain, jobs]"),
        (&["drain", "--forever", "--replay"], "cannot be used with"),
    ] {
        let output = forebay_in(folder.path(), &[arguments, &["--example", "codes"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{arguments:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn completions_and_man_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, named) in
        [("bash", "_forebay()"), ("zsh", "#compdef forebay"), ("fish", "complete -c forebay")]
    {
        let output = forebay(&["pages", "completions", shell]);
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(named), "{shell}");
    }
    let man = folder.path().join("man");
    let output = forebay(&["pages", "man", man.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(man.join("forebay-redis-up.1")).unwrap();
    assert!(page.contains(".TH forebay") && page.contains("topology"), "{page}");
}

#[test]
fn a_probe_fails_when_no_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = "admin.listen=\"127.0.0.1:1\"";
    for (arguments, named) in [
        (&["probe", "health", "--example", "codes"][..], "admin.address"),
        (&["probe", "ready", "--example", "codes", "--set", fixed], "does not answer"),
    ] {
        let output = forebay_in(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
}

#[test]
fn a_plan_shows_known_sums_and_says_what_it_lacks() {
    let output = forebay(&["plan", "-R", "1m", "--body", "32499", "--cpu", "134.4", "--writes", "100"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for figure in
        ["260 Gb/s", "134 cores busy, 192 at 70 %", "after 86,0", "672 J a million requests, a model"]
    {
        assert!(said.contains(figure), "{figure}: {said}");
    }
    let behind =
        ["--tier-cpu", "15.8", "--database-rows", "350k", "--disk-row", "617", "--beside", "Express=61.1"];
    let typed = ["plan", "-R", "1m", "--body", "200", "--cpu", "10", "--writes", "50"];
    let output = forebay(&[&typed[..], &behind].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    for line in ["15.8 masters busy, 23 at", "at 700,000 requests/s", "799,632 GB after", "Express, 61.1 µs"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    let users = forebay(&["plan", "--users", "10k", "--every", "15", "--body", "1", "--cpu", "1"]);
    assert!(String::from_utf8_lossy(&users.stdout).contains("667/s"), "{users:?}");
    let sweep = forebay(&["plan", "--point", "1=1000", "--point", "2=1900", "--workers", "8"]);
    assert!(String::from_utf8_lossy(&sweep.stdout).trim_end().ends_with("extrapolated"), "{sweep:?}");
    for (arguments, named) in [
        (&["plan", "--body", "1", "--cpu", "1"][..], "the rate is not known"),
        (&["plan", "-R", "0", "--body", "1", "--cpu", "1"], "above 0"),
        (&["plan", "-R", "1", "--cpu", "1"], "--body"),
        (&["plan", "--point", "one"], "WORKERS=RATE"),
        (&["plan", "-R", "1", "--body", "1", "--cpu", "1", "--beside", "Express"], "NAME=MICROSECONDS"),
        (&["plan", "-R", "1", "--body", "1", "--cpu", "1", "--database-rows", "0"], "above 0"),
        (&["plan", "Cargo.toml", "-R", "1"], "no report of forebay load"),
    ] {
        let output = forebay_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{arguments:?}: {said}");
    }
}

#[test]
fn a_doctor_looks_at_this_machine_and_at_the_stores_of_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let output = forebay_in(folder.path(), &["doctor"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("open files") && said.contains("to fix") && !said.contains("disk sync"), "{said}");
    let away = ["doctor", "--example", "codes", "--database", "postgres://nobody@127.0.0.1:1/none"];
    let output = forebay_in(folder.path(), &away);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("disk sync") && said.contains("WRONG   PostgreSQL"), "{said}");
}

#[test]
fn a_topology_is_halted_and_resumed_by_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], code: i32, named: &str| {
        let output = forebay_in(folder.path(), arguments);
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(named), "{arguments:?}: {said}");
        said
    };
    for command in ["halt", "resume"] {
        run(&["redis", command], 1, "holds no topology: bring one up first");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let url = format!("redis://127.0.0.1:{port}");
    run(&["redis", "up", "--port", &port], 0, &url);
    run(&["redis", "halt"], 0, "its data stays");
    run(&["redis", "status"], 1, "dead");
    run(&["redis", "up", "--port", &port], 1, "resume it");
    run(&["redis", "resume"], 0, &url);
    run(&["redis", "status"], 0, &url);
    run(&["redis", "down"], 0, "is down");
}

/// Every route, the crash and the count: with 0.1 s each it takes a few seconds.
#[test]
fn the_demo_loses_nothing() {
    let demo = [env!("CARGO_BIN_EXE_forebay"), "demo", "--seconds", "0.1", "--connections", "4"];
    let output = Command::new("timeout").arg("180").args(demo).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("POST /code-ultra-fast") && said.contains("0 missing"), "{said}");
}
