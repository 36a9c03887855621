//! The deviations that a test finds: all are printed, not only the first, and those that are known must
//! stay as they are, so that who mends one learns that its line here can go.

use crate::site::Way;
use std::io::Write as _;

/// What a test has found.
pub struct Report {
    test: &'static str,
    way: &'static str,
    /// Case and deviation.
    lines: Vec<(String, String)>,
}

impl Report {
    pub fn new(test: &'static str, way: Way) -> Report {
        Report { test, way: way.name(), lines: Vec::new() }
    }

    /// Notes a deviation of one case.
    pub fn add(&mut self, case: &str, what: impl AsRef<str>) {
        let what = what.as_ref().replace('\n', " ");
        self.lines.push((case.to_owned(), what.chars().take(700).collect()));
    }

    /// Notes the deviation that `found` has, if any.
    pub fn check(&mut self, case: &str, found: Result<(), String>) {
        if let Err(what) = found {
            self.add(case, what);
        }
    }

    /// Fails when there is a deviation.
    #[track_caller]
    pub fn finish(self) {
        let Report { test, way, lines } = self;
        let lines: Vec<String> =
            lines.iter().map(|(case, what)| format!("{test} {way} {case}: {what}")).collect();
        assert!(lines.is_empty(), "{test} {way}: {} deviations:\n{}", lines.len(), lines.join("\n"));
    }
}

/// Appends a line to the file of proofs that the environment names, after its date and commit.
pub fn prove(proof: &str, seeds: &str, rounds: u64, failures: usize, note: &str) {
    let Some((file, date, commit)) = std::env::var("FOREBAY_PROOF").ok().and_then(|text| {
        let mut parts = text.split('|').map(str::to_owned);
        Some((parts.next()?, parts.next()?, parts.next()?))
    }) else {
        return;
    };
    let mut file = std::fs::OpenOptions::new().append(true).open(file).expect("the file of proofs");
    let line = format!("{date}\t{commit}\t{proof}\t{seeds}\t{rounds}\t{failures}\t{note}\n");
    file.write_all(line.as_bytes()).expect("a line");
}
