//! The page: one HTML file that holds everything, makes no request (its own policy forbids
//! it) and runs no script.
//!
//! `chart` draws, `sections` makes the parts, `figures` the tables; the style sheet is `style.css`.
//! All input from the command line and from answers is escaped.

mod chart;
mod figures;
mod html;
mod sections;

use self::html::escape;
use super::compare::Comparison;
use super::format::{command, moment};
use super::threshold::Checked;
use super::words::load_line;
use crate::results::Results;

const STYLE: &str = include_str!("style.css");

/// What the page shows besides the results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// The comparison with an older run.
    pub comparison: Option<&'a Comparison>,
    /// Conditions, and whether they held.
    pub thresholds: &'a [Checked],
}

/// One self-contained HTML file.
pub fn page(results: &Results, extras: &Extras<'_>) -> String {
    let target = escape(&results.target);
    let command = command(&results.command);
    let command = if command.is_empty() {
        String::new()
    } else {
        format!("<pre><code>{}</code></pre>", escape(&command))
    };
    let date = if results.started_at_ms > 0 { moment(results.started_at_ms) } else { String::new() };
    let parts = [
        sections::verdict(results),
        sections::warnings(results),
        sections::cards(results),
        figures::thresholds(extras.thresholds),
        sections::over_time(results),
        sections::percentiles(results),
        figures::rates(results),
        figures::endpoints(results),
        figures::outcomes(results),
        sections::hosts(results),
        figures::paths(results),
        figures::agents(results),
        extras.comparison.map(figures::comparison).unwrap_or_default(),
        sections::explanation(results),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>Load test of {target}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header><p class=\"brand\">forebay load</p><h1>{target}</h1><p class=\"sub\">{}</p><p class=\"sub\">{date}</p>{command}</header>\n\
         {}\n<footer>Made by forebay load {}. Nothing on this page was fetched from anywhere.</footer>\n</main>\n</body>\n</html>\n",
        escape(&load_line(results)),
        parts.concat(),
        env!("CARGO_PKG_VERSION"),
    )
}
