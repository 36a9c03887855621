//! The printed report, and the files.

use crate::machine;
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The bar of a value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bar {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
    /// Only quoted.
    None,
}

/// The lines of a row.
pub type Lines = Result<Vec<Line>, Box<dyn Error>>;

/// One measured value.
pub struct Line {
    /// What was measured.
    pub what: String,
    /// The median; not a number when it could not be measured, which misses every bar.
    pub value: f64,
    /// Of the value and its bar.
    pub unit: &'static str,
    /// The bar, in the same unit.
    pub bar: Bar,
    /// Where the bar comes from, in words.
    pub bar_from: String,
    /// Rates and other figures, printed beside the value.
    pub beside: String,
    /// Every sample.
    pub samples: Value,
}

impl Line {
    /// A value with its bar.
    pub fn new(
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        bar: Bar,
        bar_from: impl Into<String>,
    ) -> Line {
        Line {
            what: what.into(),
            value,
            unit,
            bar,
            bar_from: bar_from.into(),
            beside: String::new(),
            samples: Value::Null,
        }
    }

    /// A value that is only quoted.
    pub fn quoted(what: impl Into<String>, value: f64, unit: &'static str) -> Line {
        Line::new(what, value, unit, Bar::None, "")
    }

    /// With this beside it.
    pub fn beside(self, beside: impl Into<String>) -> Line {
        Line { beside: beside.into(), ..self }
    }

    /// With its samples.
    pub fn samples(self, samples: Value) -> Line {
        Line { samples, ..self }
    }

    fn passes(&self) -> Option<bool> {
        match self.bar {
            Bar::AtMost(limit) => Some(self.value <= limit),
            Bar::AtLeast(limit) => Some(self.value >= limit),
            Bar::None => None,
        }
    }

    fn bar_text(&self) -> String {
        let text = match self.bar {
            Bar::AtMost(limit) => format!("≤ {}", number(limit)),
            Bar::AtLeast(limit) => format!("≥ {}", number(limit)),
            Bar::None => return "–".into(),
        };
        if self.bar_from.is_empty() { text } else { format!("{text} ({})", self.bar_from) }
    }

    /// Value divided by bar; `None` for a bar of zero.
    fn ratio(&self) -> Option<f64> {
        match self.bar {
            Bar::AtMost(limit) | Bar::AtLeast(limit) if limit != 0.0 && !self.value.is_nan() => {
                Some(self.value / limit)
            }
            _ => None,
        }
    }

    fn verdict(&self) -> &'static str {
        match self.passes() {
            Some(true) => "pass",
            Some(false) => "miss",
            None => "",
        }
    }
}

/// Three significant digits; `NaN` for a value that could not be measured.
fn number(value: f64) -> String {
    match value.abs() {
        size if size.is_nan() => "–".into(),
        0.0 => "0".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Everything that was measured.
pub struct Report {
    quick: bool,
    markdown: String,
    lines: Vec<Value>,
    missed: usize,
}

impl Report {
    /// An empty one.
    pub fn new(quick: bool) -> Report {
        println!("{}", machine::describe());
        if quick {
            println!("quick: short runs, once each; not to be quoted");
        }
        let head = "| row | what | measured | bar | ratio | | beside |\n|---|---|---|---|---|---|---|\n";
        Report { quick, markdown: head.into(), lines: Vec::new(), missed: 0 }
    }

    /// Prints and stores a line.
    pub fn add(&mut self, row: &str, line: Line) {
        let ratio = line.ratio().map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}"));
        let (value, bar, verdict) = (number(line.value), line.bar_text(), line.verdict());
        println!(
            "  {:44} {value:>9} {:10} {bar:44} ×{ratio:5} {verdict:4} {}",
            line.what, line.unit, line.beside
        );
        self.missed += usize::from(line.passes() == Some(false));
        self.markdown += &format!(
            "| {row} | {} | {value} {} | {bar} | {ratio} | {verdict} | {} |\n",
            line.what, line.unit, line.beside
        );
        self.lines.push(json!({
            "row": row,
            "what": line.what,
            "value": line.value,
            "unit": line.unit,
            "bar": line.bar_text(),
            "ratio": line.ratio(),
            "pass": line.passes(),
            "beside": line.beside,
            "samples": line.samples,
        }));
    }

    /// A row that could not be measured.
    pub fn failed(&mut self, row: &str, why: &str) {
        let why = why.replace('\n', " ");
        self.markdown += &format!("| {row} | not measured: {why} | | | | | |\n");
        self.lines.push(json!({ "row": row, "not_measured": why }));
    }

    /// Prints the table and writes both files.
    pub fn finish(self) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let commit = Command::new("git")
            .args(["rev-parse", "--short", "HEAD"])
            .current_dir(forebay_tests::root())
            .output();
        let commit = commit
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .unwrap_or_default();
        let command: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("forebay-bench {}", command.join(" ")).trim_end().to_owned();
        let machine = machine::describe();
        println!("\n{}\n{} missed", self.markdown, self.missed);
        let folder = forebay_tests::root().join("bench/results");
        fs::create_dir_all(&folder)?;
        let name = format!("{since}{}", if self.quick { "-quick" } else { "" });
        let path = |ending: &str| -> PathBuf { folder.join(format!("{name}.{ending}")) };
        let head = format!("`{command}`, commit {commit}, {machine}, {since} s after 1970\n\n");
        fs::write(path("md"), head + &self.markdown)?;
        let all = json!({
            "command": command,
            "commit": commit,
            "machine": machine,
            "unix_time_s": since,
            "quick": self.quick,
            "lines": self.lines,
        });
        fs::write(path("json"), format!("{all:#}\n"))?;
        println!("kept in {} and .json", path("md").display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_kept_or_missed() {
        for (value, bar, passes, ratio) in [
            (9.0, Bar::AtMost(10.0), Some(true), Some(0.9)),
            (10.0, Bar::AtMost(10.0), Some(true), Some(1.0)),
            (11.0, Bar::AtMost(10.0), Some(false), Some(1.1)),
            (9.0, Bar::AtLeast(10.0), Some(false), Some(0.9)),
            (10.0, Bar::AtLeast(10.0), Some(true), Some(1.0)),
            (1.0, Bar::None, None, None),
            (f64::NAN, Bar::AtMost(10.0), Some(false), None),
        ] {
            let line = Line::new("x", value, "ms", bar, "");
            assert_eq!((line.passes(), line.ratio()), (passes, ratio), "{value} {bar:?}");
        }
        assert_eq!(Line::new("x", 0.0, "requests", Bar::AtMost(0.0), "").passes(), Some(true));
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1234.5, "1234"),
            (12.345, "12.3"),
            (1.2345, "1.23"),
            (0.5, "0.50"),
            (0.012, "0.0120"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
