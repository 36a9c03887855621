//! Many runs: each compared with one of them, or in a table by two labels.

use super::compare::{Comparison, Difference};
use super::format::{figure, milliseconds, moment};
use super::tables::table;
use super::words::limit_word;
use crate::results::Results;
use comfy_table::{CellAlignment, Table};
use std::fmt::Write;

/// Figures of the list, as the comparison of two runs names them.
const COMPARED: [&str; 4] = ["Req/Sec", "Latency 50%", "Latency 99%", "Errors"];

/// A run of a history, with its file name.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredRun {
    /// The file name, without the folder.
    pub file: String,
    /// The results in the file.
    pub results: Results,
}

impl StoredRun {
    /// The run's labels; without labels, its target.
    fn name(&self) -> String {
        let labels = self.results.labels.iter().map(|(name, value)| format!("{name}={value}"));
        let named = labels.collect::<Vec<_>>().join(" ");
        if named.is_empty() { self.results.target.clone() } else { named }
    }

    fn label(&self, name: &str) -> String {
        self.results.labels.get(name).cloned().unwrap_or_else(|| "–".to_owned())
    }
}

/// One row for each run, in the order given. Below each figure stand its difference to the run at
/// `against`, and whether the difference is more than noise.
pub fn list(runs: &[StoredRun], against: usize) -> String {
    let mut table = table(["", "Run", "Req/Sec", "50%", "99%", "Errors"]);
    table.column_mut(1).into_iter().for_each(|column| column.set_cell_alignment(CellAlignment::Left));
    let mut notes = Vec::new();
    for (place, run) in runs.iter().enumerate() {
        let comparison = Comparison::of(&runs[against].results, &run.results);
        let cell = |name: &&str| {
            let difference = comparison.differences().iter().find(|difference| difference.name == **name);
            difference.map_or_else(String::new, |difference| compared(difference, place == against))
        };
        let started = moment(run.results.started_at_ms);
        let verdict = run.results.verdict.as_ref().map_or("–", |verdict| limit_word(verdict.limit));
        let complete = if run.results.complete { "" } else { ", partial" };
        let name = format!("{}\n{started}\n{verdict}{complete}", run.name());
        table.add_row([(place + 1).to_string(), name].into_iter().chain(COMPARED.iter().map(cell)));
        if place != against {
            notes.extend(comparison.notes().iter().map(|note| format!("! {}: {note}", place + 1)));
        }
    }
    notes.insert(0, format!("All against run {}, {}.", against + 1, runs[against].file));
    format!("{table}\n{}\n", notes.join("\n"))
}

fn compared(difference: &Difference, is_base: bool) -> String {
    let now = difference.show(difference.now);
    match is_base {
        true => now,
        false => format!("{now}\n{}\n{}", difference.change(), difference.judgement()),
    }
}

/// A figure of a run: its name, how to read it, and how to format it.
type Shown = (&'static str, fn(&Results) -> f64, fn(f64) -> String);

/// What each table of [`pivot`] shows.
const PIVOTED: [Shown; 7] = [
    ("Req/Sec", |results| results.requests.rate_per_s, figure),
    ("Latency mean", |results| results.latency_ms.mean_ms(), milliseconds),
    ("Latency 50%", |results| results.latency_ms.percentile_ms(50.0), milliseconds),
    ("Latency 90%", |results| results.latency_ms.percentile_ms(90.0), milliseconds),
    ("Latency 99%", |results| results.latency_ms.percentile_ms(99.0), milliseconds),
    ("Latency max", |results| results.latency_ms.max_ms(), milliseconds),
    ("Errors", errors_percent, |value| format!("{} %", figure(value))),
];

fn errors_percent(results: &Results) -> f64 {
    let requests = &results.requests;
    let errors = requests.errors + requests.timeouts + requests.unexpected;
    errors as f64 * 100.0 / requests.sent.max(1) as f64
}

/// A table for each figure: a row for each value of one label, a column for each of another, both in the
/// order in which they first appear. A cell with several runs shows the lowest and the highest value.
pub fn pivot(runs: &[StoredRun], rows: &str, columns: &str) -> String {
    let (down, across) = (values(runs, rows), values(runs, columns));
    let mut text = String::new();
    for (name, of, show) in PIVOTED {
        let mut table = table_of(format!("{name}: {rows} × {columns}"), &across);
        for row in &down {
            let cell = |column: &String| {
                let here = runs.iter().filter(|run| run.label(rows) == *row && run.label(columns) == *column);
                spread(here.map(|run| of(&run.results)).collect(), show)
            };
            table.add_row([row.clone()].into_iter().chain(across.iter().map(cell)));
        }
        let _ = writeln!(text, "{table}\n");
    }
    text
}

fn table_of(corner: String, across: &[String]) -> Table {
    let mut table = table([]);
    table.set_header([corner].iter().chain(across));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn values(runs: &[StoredRun], label: &str) -> Vec<String> {
    let mut values = Vec::new();
    for value in runs.iter().map(|run| run.label(label)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn spread(mut figures: Vec<f64>, show: fn(f64) -> String) -> String {
    figures.sort_by(f64::total_cmp);
    match figures.as_slice() {
        [] => String::new(),
        [one] => show(*one),
        [low, .., high] => format!("{} to {} ({} runs)", show(*low), show(*high), figures.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Requests, Second};

    fn run(size: &str, profile: &str, rate: u64) -> StoredRun {
        let labels = [("size".to_owned(), size.to_owned()), ("profile".to_owned(), profile.to_owned())];
        let seconds = (0..10).map(|second| Second { second, completed: rate, ..Second::default() }).collect();
        let requests = Requests { sent: 10 * rate, rate_per_s: rate as f64, ..Requests::default() };
        let mut results =
            Results { labels: labels.into(), seconds, requests, duration_s: 10.0, ..Results::default() };
        results.latency_ms.record(rate * 1_000_000);
        StoredRun { file: format!("{size}-{profile}.json"), results }
    }

    #[test]
    fn every_run_stands_beside_one() {
        let runs = [run("small", "low", 100), run("small", "high", 150), run("large", "low", 100)];
        let text = list(&runs, 0);
        assert!(text.contains("+50.0 %") && text.contains("better"), "{text}");
        assert!(text.contains("All against run 1, small-low.json."), "{text}");
        let against_last = list(&runs, 2);
        assert!(against_last.contains("All against run 3, large-low.json."), "{against_last}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}\n{text}");
    }

    #[test]
    fn a_table_by_size_and_profile() {
        let runs = [
            run("small", "low", 100),
            run("small", "very-high", 300),
            run("large", "low", 100),
            run("small", "low", 104),
        ];
        let text = pivot(&runs, "size", "profile");
        let first: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
        let cells = |line: &str| line.split(['│', '┆']).map(str::trim).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells(first[1])[1..4], ["Req/Sec: size × profile", "low", "very-high"]);
        assert_eq!(cells(first[3])[1..4], ["small", "100 to 104 (2 runs)", "300"]);
        assert_eq!(cells(first[4])[1..4], ["large", "100", ""]);
        assert!(text.contains("Latency 99%: size × profile"), "{text}");
        assert!(pivot(&runs, "size", "machine").contains("│ small"), "a label that no run has is one column");
    }
}
