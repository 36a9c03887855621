//! The final tables, in the shape that users of autocannon know.

use super::compare::Comparison;
use super::format::{bytes, command, count, figure, milliseconds, percentile, short};
use super::threshold::Checked;
use super::words::{hidden_note, limit_word, load_line, model_note, warnings};
use crate::results::{Endpoint, Host, Path, Rates, Results, Role};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use std::fmt::Write;

/// Percentiles of the full list.
pub(super) const LIST: [f64; 13] =
    [2.5, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.9, 99.99, 99.999, 100.0];

/// The whole report of a run as plain text, for a terminal. Ends with the verdict, because the last
/// lines stay on the screen.
pub fn tables(results: &Results, comparison: Option<&Comparison>, thresholds: &[Checked]) -> String {
    let mut text = String::new();
    let mut add = |part: String| {
        if !part.is_empty() {
            text.push_str(&part);
            text.push_str("\n\n");
        }
    };
    add(heading(results));
    if results.requests.completed > 0 {
        add(latency(results).to_string());
        add(rates(results).to_string());
        add(list(results).to_string());
    }
    add(endpoints(&results.endpoints));
    add(outcomes(results));
    add(hosts(&results.hosts));
    add(paths(&results.paths));
    add(agents(results));
    if let Some(comparison) = comparison {
        add(compared(comparison));
    }
    add(checked(thresholds));
    add(totals(results));
    add(model_note(results) + &hidden_note(results).map(|note| format!("\n{note}")).unwrap_or_default());
    add(warnings(results).iter().map(|warning| format!("! {warning}")).collect::<Vec<_>>().join("\n"));
    if let Some(verdict) = &results.verdict {
        add(format!("Verdict: {}. {}", limit_word(verdict.limit), verdict.why));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A table whose first column is names, the rest figures.
pub(super) fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn heading(results: &Results) -> String {
    let command = command(&results.command);
    let line = format!("{}\n{}", results.target, load_line(results));
    if command.is_empty() { line } else { format!("$ {command}\n{line}") }
}

fn latency(results: &Results) -> Table {
    let mut table = table(["Stat", "2.5%", "50%", "97.5%", "99%", "Avg", "Stdev", "Max"]);
    let latency = &results.latency_ms;
    let at = |percentile| milliseconds(latency.percentile_ms(percentile));
    table.add_row([
        "Latency".to_owned(),
        at(2.5),
        at(50.0),
        at(97.5),
        at(99.0),
        milliseconds(latency.mean_ms()),
        milliseconds(latency.stdev_ms()),
        milliseconds(latency.max_ms()),
    ]);
    table
}

fn rates(results: &Results) -> Table {
    let mut table = table(["Stat", "1%", "2.5%", "50%", "97.5%", "Avg", "Stdev", "Min"]);
    let mut row = |name: &str, rates: Rates, show: fn(f64) -> String| {
        let figures = [rates.p1, rates.p2_5, rates.p50, rates.p97_5, rates.mean, rates.stdev, rates.min];
        table.add_row(std::iter::once(name.to_owned()).chain(figures.map(show)));
    };
    row("Req/Sec", results.request_rates(), figure);
    row("Bytes/Sec", results.read_rates(), bytes);
    table
}

fn list(results: &Results) -> Table {
    let from_sent = results.latency_from_sent_ms.as_ref();
    let mut table = match from_sent {
        Some(_) => table(["Percentile", "Latency", "From sending"]),
        None => table(["Percentile", "Latency"]),
    };
    for wanted in std::iter::once(0.0).chain(LIST) {
        let name = match wanted {
            0.0 => "min".to_owned(),
            100.0 => "max".to_owned(),
            _ => format!("{}%", percentile(wanted)),
        };
        let at = |latency: &crate::Latency| match wanted {
            0.0 => milliseconds(latency.min_ms()),
            _ => milliseconds(latency.percentile_ms(wanted)),
        };
        let columns = std::iter::once(at(&results.latency_ms)).chain(from_sent.map(at));
        table.add_row(std::iter::once(name).chain(columns));
    }
    table
}

/// `200 × 1,234, 404 × 5`.
pub(super) fn statuses<'a>(statuses: impl IntoIterator<Item = (&'a u16, &'a u64)>) -> String {
    let each = statuses.into_iter().map(|(status, number)| format!("{status} × {}", count(*number)));
    each.collect::<Vec<_>>().join(", ")
}

/// Empty for a single endpoint: the tables above already show its figures.
fn endpoints(endpoints: &[Endpoint]) -> String {
    if endpoints.len() < 2 {
        return String::new();
    }
    let mut table = table(["Endpoint", "Req/Sec", "50%", "99%", "Max", "Errors", "Statuses"]);
    for endpoint in endpoints {
        let latency = &endpoint.latency_ms;
        table.add_row([
            endpoint.name.clone(),
            figure(endpoint.requests.rate_per_s),
            milliseconds(latency.percentile_ms(50.0)),
            milliseconds(latency.percentile_ms(99.0)),
            milliseconds(latency.max_ms()),
            count(endpoint.requests.errors + endpoint.requests.timeouts),
            statuses(&endpoint.statuses),
        ]);
    }
    table.to_string()
}

fn outcomes(results: &Results) -> String {
    let mut table = table(["Outcome", "Count"]);
    for (status, number) in &results.statuses {
        table.add_row([format!("status {status}"), count(*number)]);
    }
    for (kind, number) in &results.errors_by_kind {
        table.add_row([kind.to_string(), count(*number)]);
    }
    if table.row_count() == 0 { String::new() } else { table.to_string() }
}

/// Means of a machine over the run: CPU in all, of the process, stolen; bytes read and written a
/// second.
pub(super) fn host_means(host: &Host) -> [f64; 5] {
    let mean = |figure: fn(&crate::results::HostSecond) -> f64| {
        host.seconds.iter().map(figure).sum::<f64>() / host.seconds.len().max(1) as f64
    };
    [
        mean(|second| f64::from(second.cpu_percent)),
        mean(|second| f64::from(second.process_cpu_percent)),
        mean(|second| f64::from(second.stolen_percent)),
        mean(|second| second.network_read_bytes as f64),
        mean(|second| second.network_written_bytes as f64),
    ]
}

pub(super) fn role_word(role: Role) -> &'static str {
    match role {
        Role::Tester => "tester",
        Role::Server => "server",
    }
}

fn hosts(hosts: &[Host]) -> String {
    let watched: Vec<&Host> = hosts.iter().filter(|host| !host.seconds.is_empty()).collect();
    if watched.is_empty() {
        return String::new();
    }
    let head = ["Host", "CPU", "of 100%", "Process", "Stolen", "Memory", "In/Sec", "Out/Sec", "Connections"];
    let mut table = table(head);
    for host in watched {
        let [cpu, process, stolen, read, written] = host_means(host);
        let memory = host.seconds.iter().map(|second| second.process_memory_bytes).max().unwrap_or(0);
        let connections = host.seconds.iter().map(|second| second.connections).max().unwrap_or(0);
        table.add_row([
            format!("{} {}", role_word(host.role), host.name),
            format!("{cpu:.0} %"),
            format!("{:.0} % of {}", cpu / f64::from(host.cores.max(1)), host.cores),
            format!("{process:.0} %"),
            format!("{stolen:.0} %"),
            bytes(memory as f64),
            bytes(read),
            bytes(written),
            count(connections),
        ]);
    }
    table.to_string()
}

/// `940 Mbit/s`.
pub(super) fn bits(per_s: f64) -> String {
    let (value, unit) = if per_s >= 999.5e6 { (per_s / 1e9, "Gbit/s") } else { (per_s / 1e6, "Mbit/s") };
    format!("{} {unit}", figure(value))
}

/// Each path with its figures: bytes to and from the server, packets to and from it.
pub(super) fn path_figures(path: &Path) -> [String; 5] {
    let packets =
        |rate: Option<f64>| rate.map_or_else(|| "none came".to_owned(), |rate| format!("{}/s", short(rate)));
    [
        format!("{} → {}", path.tester, path.server),
        bits(path.to_server_bits_per_s),
        bits(path.from_server_bits_per_s),
        packets(path.to_server_packets_per_s),
        packets(path.from_server_packets_per_s),
    ]
}

pub(super) const PATH_HEAD: [&str; 5] = ["Network before", "Up", "Down", "Packets up", "Packets down"];

fn paths(paths: &[Path]) -> String {
    let mut table = table(PATH_HEAD);
    table.add_rows(paths.iter().map(path_figures));
    if paths.is_empty() { String::new() } else { table.to_string() }
}

fn agents(results: &Results) -> String {
    if results.agents.is_empty() {
        return String::new();
    }
    let mut table = table(["Agent", "Req/Sec", "Sent", "Answered", "Started", "Clock", "Complete"]);
    for agent in &results.agents {
        table.add_row([
            agent.name.clone(),
            figure(agent.rate_per_s),
            count(agent.sent),
            count(agent.completed),
            format!("{:+.1} ms", agent.start_offset_ms),
            format!("{:+.1} ms", agent.clock_offset_ms),
            if agent.complete { "yes".into() } else { "no".into() },
        ]);
    }
    table.to_string()
}

fn compared(comparison: &Comparison) -> String {
    let mut table = table(["Compared", "Before", "Now", "Change", "Noise", ""]);
    for line in comparison.differences() {
        table.add_row([
            line.name.clone(),
            line.show(line.before),
            line.show(line.now),
            line.change(),
            line.noise_text(),
            line.judgement().to_owned(),
        ]);
    }
    let mut text = table.to_string();
    for note in comparison.notes() {
        let _ = write!(text, "\n! {note}");
    }
    text
}

fn checked(thresholds: &[Checked]) -> String {
    if thresholds.is_empty() {
        return String::new();
    }
    let mut table = table(["Threshold", "Actual", ""]);
    for threshold in thresholds {
        let held = if threshold.held { "held" } else { "BROKEN" };
        table.add_row([threshold.condition.as_str(), threshold.actual.as_str(), held]);
    }
    table.to_string()
}

fn totals(results: &Results) -> String {
    let requests = &results.requests;
    let mut line = format!(
        "{} requests sent, {} answered in {:.2} s, {} read, {} written; {} connections made",
        count(requests.sent),
        count(requests.completed),
        results.elapsed_s.max(results.duration_s),
        bytes(results.bytes.read as f64),
        bytes(results.bytes.written as f64),
        count(results.connects.made),
    );
    if results.connects.reconnects > 0 {
        let _ = write!(line, " ({} again)", count(results.connects.reconnects));
    }
    if results.connects.failed > 0 {
        let _ = write!(line, ", {} attempts to connect failed", count(results.connects.failed));
    }
    line
}
