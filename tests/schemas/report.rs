//! The deviations that a test finds: all are printed, not only the first, and those that are known must
//! stay as they are, so that who mends one learns that its line here can go.

use crate::site::Way;
use std::io::Write as _;

/// Deviations that stay for now: the test, the ways of following ("" for all), how the case begins, and
/// why.
const KNOWN: [(&str, &str, &str, &str); 1] = [
    // Memory shows the text that was sent until the row is read again.
    ("values", "logical triggers", "bit varying(8) 'x1' posted", "the type's input makes another text of it"),
];

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

    /// Fails when there is a deviation that is not known, or a known one is gone.
    #[track_caller]
    pub fn finish(self) {
        let Report { test, way, lines } = self;
        let known: Vec<&str> = KNOWN
            .iter()
            .filter(|(of, ways, _, _)| {
                *of == test && (ways.is_empty() || ways.split(' ').any(|one| one == way))
            })
            .map(|(_, _, case, _)| *case)
            .collect();
        let is_known = |(case, _): &&(String, String)| known.iter().any(|known| is_of(case, known));
        let new: Vec<String> = lines
            .iter()
            .filter(|line| !is_known(line))
            .map(|(case, what)| format!("{test} {way} {case}: {what}"))
            .collect();
        let gone: Vec<&&str> =
            known.iter().filter(|known| !lines.iter().any(|(case, _)| is_of(case, known))).collect();
        assert!(new.is_empty(), "{test} {way}: {} deviations:\n{}", new.len(), new.join("\n"));
        assert!(gone.is_empty(), "{test} {way}: mended, so remove it from report.rs: {gone:?}");
    }
}

/// Whether a case is the known one, or one of its values.
fn is_of(case: &str, known: &str) -> bool {
    case.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
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
