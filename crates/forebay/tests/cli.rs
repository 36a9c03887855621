//! What is typed wrong on the command line. That this test is here also has `cargo test --workspace` build the binary for all others, with the features
//! that everything else there has.

use std::process::{Command, Output};

fn forebay(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).output().expect("the binary runs")
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
        (&["check-config", "no-such-file.toml"], "no-such-file.toml"),
    ] {
        let output = forebay(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(named), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}
