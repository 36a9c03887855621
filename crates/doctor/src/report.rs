//! Findings as text: for a terminal of 80 columns, and for sysctl.d.

use crate::finding::{Finding, Fix, State};
use std::fmt::Write;

/// The width of a line.
const COLUMNS: usize = 80;
/// Where the text of a finding begins.
const INDENT: usize = 30;

/// The findings, the worst first, and within a state in the order of examination.
pub fn report(findings: &[Finding]) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.state));
    let mut text = String::new();
    for finding in sorted {
        let word = match finding.state {
            State::Well => "ok",
            State::Unknown => "unknown",
            State::Slow => "slow",
            State::Wrong => "WRONG",
        };
        let head = format!("{word:<8}{:<22}", finding.subject);
        wrap(&mut text, &head, &finding.found);
        if !finding.cost.is_empty() {
            wrap(&mut text, "", &format!("costs: {}", finding.cost));
        }
        match &finding.fix {
            Fix::Nothing => {}
            Fix::Command(command) => wrap(&mut text, "", &format!("mend: {command}")),
            Fix::Sysctl { key, value } => wrap(&mut text, "", &format!("mend: sysctl -w {key}='{value}'")),
        }
    }
    text
}

/// Wraps words into lines of [`COLUMNS`]; the first line begins with `head`. A word that is longer than a
/// line is not split, because it may be part of a command.
fn wrap(text: &mut String, head: &str, words: &str) {
    let mut line = format!("{head:<INDENT$}");
    let mut is_empty = true;
    for word in words.split_whitespace() {
        let length = line.chars().count() + usize::from(!is_empty) + word.chars().count();
        if length > COLUMNS && !is_empty {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(INDENT);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// A file of sysctl.d with every kernel setting that a finding recommends; `None` when there is
/// none.
pub fn sysctl_file(findings: &[Finding]) -> Option<String> {
    let mut text = "# Written by `forebay doctor --fix`.\n".to_owned();
    let before = text.len();
    for finding in findings {
        if let Fix::Sysctl { key, value } = &finding.fix {
            writeln!(text, "# {}: {}\n{key} = {value}", finding.subject, finding.found).ok()?;
        }
    }
    (text.len() > before).then_some(text)
}
