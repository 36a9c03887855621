//! What a rule does not hold for yet: `exceptions.txt`, a rule and a file a line, which only gets shorter.
//!
//! A file that breaks a rule and is not listed fails the rule's test, and so does a listed file
//! that no longer breaks it. `FOREBAY_TIDY_WRITE=1 cargo test -p forebay-tests --test tidy` takes
//! out the lines that are no longer needed. It adds a file (one that was moved or split) only as
//! far as the number of lines of its rule does not grow.

use super::root;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Rules are checked at the same time, and write into one file.
static WRITING: Mutex<()> = Mutex::new(());

/// A place where a rule is broken.
pub struct Breach {
    /// The file, as seen from the root.
    pub file: String,
    /// Where and how, for whoever must mend it.
    pub what: String,
}

/// Holds `rule` for every file but those that are listed as its exceptions.
pub fn hold(rule: &str, breaches: &[Breach]) {
    let _guard = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = lines();
    let listed: BTreeSet<&str> =
        lines.iter().filter_map(|line| line.strip_prefix(rule)?.strip_prefix(' ')).collect();
    let broken: BTreeSet<&str> = breaches.iter().map(|breach| breach.file.as_str()).collect();
    let stale: Vec<&&str> = listed.difference(&broken).collect();
    let is_new = |breach: &&Breach| !listed.contains(breach.file.as_str());
    let new: Vec<&str> = breaches.iter().filter(is_new).map(|breach| breach.what.as_str()).collect();
    if std::env::var_os("FOREBAY_TIDY_WRITE").is_some() && broken.len() <= listed.len() {
        write(rule, &lines, &broken);
        return;
    }
    assert!(new.is_empty(), "{rule}:\n{}", new.join("\n"));
    assert!(
        stale.is_empty(),
        "{rule} holds now for {stale:#?}: take them out of tests/tidy/exceptions.txt by\n\
         FOREBAY_TIDY_WRITE=1 cargo test -p forebay-tests --test tidy"
    );
}

fn path() -> PathBuf {
    root().join("tests/tidy/exceptions.txt")
}

/// The entries; lines of a merge that both sides kept count once.
fn lines() -> BTreeSet<String> {
    let text = fs::read_to_string(path()).expect("the list of exceptions");
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn write(rule: &str, lines: &BTreeSet<String>, broken: &BTreeSet<&str>) {
    let of_rule = |line: &&String| line.strip_prefix(rule).is_some_and(|rest| rest.starts_with(' '));
    let others = lines.iter().filter(|line| !of_rule(line)).cloned();
    let all: BTreeSet<String> = others.chain(broken.iter().map(|file| format!("{rule} {file}"))).collect();
    let text: String = all.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path(), text).expect("the list of exceptions can be written");
}
