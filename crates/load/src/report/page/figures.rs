//! The tables of the page.

use super::super::compare::Comparison;
use super::super::format::{bytes, count, figure, milliseconds, percentile};
use super::super::tables::{LIST, PATH_HEAD, host_means, path_figures};
use super::super::threshold::Checked;
use super::html::{escape, section};
use crate::results::{Host, Rates, Results};
use std::fmt::Write;

/// A table in a box that scrolls sideways when the screen is too narrow. The rows are escaped here.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head: String = head.iter().map(|name| format!("<th scope=\"col\">{}</th>", escape(name))).collect();
    let mut body = String::new();
    for row in rows {
        body.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let tag = if column == 0 { "th scope=\"row\"" } else { "td" };
            let class = match cell.as_str() {
                "better" | "held" | "yes" => " class=\"good\"",
                "worse" | "BROKEN" | "no" => " class=\"bad\"",
                _ => "",
            };
            let _ = write!(body, "<{tag}{class}>{}</{}>", escape(cell), &tag[..2]);
        }
        body.push_str("</tr>");
    }
    if body.is_empty() {
        return body;
    }
    format!(
        "<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )
}

pub(super) fn percentiles(results: &Results) -> String {
    let latency = &results.latency_ms;
    let from_sent = results.latency_from_sent_ms.as_ref();
    let mut head = vec!["Percentile", "Latency"];
    head.extend(from_sent.map(|_| "From sending"));
    let row = |name: String, at: &dyn Fn(&crate::Latency) -> f64| {
        let figures = std::iter::once(latency).chain(from_sent).map(|latency| milliseconds(at(latency)));
        std::iter::once(name).chain(figures).collect::<Vec<_>>()
    };
    let mut rows = vec![row("shortest".into(), &|latency| latency.min_ms())];
    for wanted in LIST {
        let name = if wanted == 100.0 { "longest".into() } else { format!("{} %", percentile(wanted)) };
        rows.push(row(name, &|latency| latency.percentile_ms(wanted)));
    }
    rows.push(row("mean".into(), &|latency| latency.mean_ms()));
    rows.push(row("deviation".into(), &|latency| latency.stdev_ms()));
    // Two columns side by side where there is room.
    let second = rows.split_off(rows.len().div_ceil(2));
    format!("<div class=\"pair\">{}{}</div>\n", table(&head, rows), table(&head, second))
}

pub(super) fn rates(results: &Results) -> String {
    let row = |name: &str, rates: Rates, show: fn(f64) -> String| {
        let figures =
            [rates.min, rates.p1, rates.p2_5, rates.p50, rates.p97_5, rates.max, rates.mean, rates.stdev];
        std::iter::once(name.to_owned()).chain(figures.map(show)).collect::<Vec<_>>()
    };
    let rows =
        [row("Requests", results.request_rates(), figure), row("Bytes read", results.read_rates(), bytes)];
    let head = ["Per second", "Min", "1 %", "2.5 %", "50 %", "97.5 %", "Max", "Mean", "Deviation"];
    section("Rates", &table(&head, rows))
}

pub(super) fn endpoints(results: &Results) -> String {
    if results.endpoints.is_empty() {
        return String::new();
    }
    let rows = results.endpoints.iter().map(|endpoint| {
        let (latency, requests) = (&endpoint.latency_ms, &endpoint.requests);
        vec![
            endpoint.name.clone(),
            figure(requests.rate_per_s),
            count(requests.completed),
            milliseconds(latency.percentile_ms(50.0)),
            milliseconds(latency.percentile_ms(90.0)),
            milliseconds(latency.percentile_ms(99.0)),
            milliseconds(latency.max_ms()),
            count(requests.errors + requests.timeouts),
            super::super::tables::statuses(&endpoint.statuses),
        ]
    });
    let head = ["Endpoint", "Per second", "Answers", "50 %", "90 %", "99 %", "Longest", "Errors", "Statuses"];
    section("Endpoints", &table(&head, rows))
}

pub(super) fn outcomes(results: &Results) -> String {
    let sent = results.requests.sent.max(1) as f64;
    let part = |number: u64| format!("{} %", figure(number as f64 * 100.0 / sent));
    let row = |name: String, number: u64| vec![name, count(number), part(number)];
    let requests = &results.requests;
    let mut rows: Vec<Vec<String>> = Vec::new();
    rows.extend(results.statuses.iter().map(|(status, number)| row(format!("status {status}"), *number)));
    rows.extend(results.errors_by_kind.iter().map(|(kind, number)| row(kind.to_string(), *number)));
    let left = [("in flight at the end", requests.in_flight), ("never sent", requests.never_sent)];
    rows.extend(
        left.iter().filter(|(_, number)| *number > 0).map(|(name, number)| row((*name).into(), *number)),
    );
    section("Answers and errors", &table(&["Outcome", "Requests", "Of those sent"], rows))
}

pub(super) fn host(host: &Host) -> String {
    let [cpu, process, stolen, read, written] = host_means(host);
    let seconds = host.seconds.len().max(1) as f64;
    let mean = |figure: fn(&crate::results::HostSecond) -> u64| {
        host.seconds.iter().map(figure).sum::<u64>() as f64 / seconds
    };
    let highest =
        |figure: fn(&crate::results::HostSecond) -> u64| host.seconds.iter().map(figure).max().unwrap_or(0);
    let packets = mean(|second| second.network_read_packets + second.network_written_packets);
    let mut rows = vec![
        vec!["CPU, sum of cores".to_owned(), format!("{cpu:.0} % of {}", host.cores * 100)],
        vec!["of it the process".into(), format!("{process:.0} %")],
        vec!["stolen by the hypervisor".into(), format!("{stolen:.0} %")],
        vec![
            "memory of the process, most".into(),
            bytes(highest(|second| second.process_memory_bytes) as f64),
        ],
        vec!["memory in use, most".into(), bytes(highest(|second| second.memory_used_bytes) as f64)],
        vec!["network in · out".into(), format!("{}/s · {}/s", bytes(read), bytes(written))],
        vec!["packets, both ways".into(), format!("{}/s", figure(packets))],
        vec!["TCP connections, most".into(), count(highest(|second| second.connections))],
    ];
    let extras = [
        ("waiting", "requests waiting for the database"),
        ("backlog_rows", "rows not drained yet"),
        ("backlog_bytes", "bytes not drained yet"),
        ("resent_segments_per_s", "segments sent again a second"),
        ("spurious_resent_segments_per_s", "of them needlessly, a second"),
        ("held_back_per_s", "packets held back, per second"),
        ("disk_stalled_percent", "time waiting for the disk, per cent"),
    ];
    for (name, said) in extras {
        let values: Vec<f64> =
            host.seconds.iter().filter_map(|second| second.extra.get(name).copied()).collect();
        if values.iter().any(|value| *value >= 0.05) {
            rows.push(vec![said.into(), figure(values.iter().sum::<f64>() / values.len() as f64)]);
        }
    }
    table(&["Mean of the run", ""], rows)
}

pub(super) fn paths(results: &Results) -> String {
    let rows = results.paths.iter().map(|path| path_figures(path).to_vec());
    section("The network before the run", &table(&PATH_HEAD, rows))
}

pub(super) fn agents(results: &Results) -> String {
    let rows = results.agents.iter().map(|agent| {
        vec![
            agent.name.clone(),
            figure(agent.rate_per_s),
            count(agent.sent),
            count(agent.completed),
            format!("{:+.1} ms", agent.start_offset_ms),
            format!("{:+.1} ms", agent.clock_offset_ms),
            if agent.complete { "yes".into() } else { "no".into() },
        ]
    });
    let head = ["Agent", "Per second", "Sent", "Answered", "Started", "Clock", "Complete"];
    section("Agents", &table(&head, rows))
}

pub(super) fn thresholds(thresholds: &[Checked]) -> String {
    let rows = thresholds.iter().map(|threshold| {
        let held = if threshold.held { "held" } else { "BROKEN" };
        vec![threshold.condition.clone(), threshold.actual.clone(), held.into()]
    });
    section("Thresholds", &table(&["Condition", "Actual", ""], rows))
}

pub(super) fn comparison(comparison: &Comparison) -> String {
    let rows = comparison.differences().iter().map(|line| {
        vec![
            line.name.clone(),
            line.show(line.before),
            line.show(line.now),
            line.change(),
            line.noise_text(),
            line.judgement().into(),
        ]
    });
    let mut body = table(&["", "Before", "Now", "Change", "Noise", ""], rows);
    for note in comparison.notes() {
        let _ = writeln!(body, "<p class=\"small\">{}</p>", escape(note));
    }
    body.push_str(
        "<p class=\"small\">Noise: three standard errors of both runs together, each cut into up to ten blocks.</p>\n",
    );
    section("Compared with the run before", &body)
}
