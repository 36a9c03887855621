//! The parts of the page other than tables: verdict, warnings, cards, charts, the explanation.

use super::super::format::{bytes, count, figure, milliseconds, short, whole};
use super::super::tables::role_word;
use super::super::words;
use super::chart::{Across, Chart, LineStyle, Series};
use super::figures;
use super::html::{escape, section};
use crate::Latency;
use crate::results::{Host, HostSecond, Limit, Model, Results, Second};
use std::fmt::Write;

/// Points of the percentile curve: ten for each nine.
const CURVE_STEP: f64 = 0.1;

pub(super) fn verdict(results: &Results) -> String {
    let Some(verdict) = &results.verdict else { return String::new() };
    let tone = match verdict.limit {
        Limit::RateMet => "good",
        Limit::Unknown => "plain",
        Limit::TesterCpu | Limit::StolenCpu => "bad",
        Limit::ServerCpu | Limit::Network | Limit::Database | Limit::Connections => "warn",
    };
    let lead = if tone == "good" || tone == "plain" { "Verdict" } else { "What ran out" };
    format!(
        "<section class=\"verdict {tone}\" id=\"verdict\"><p class=\"lead\">{lead}</p><p class=\"word\">{}</p><p>{}</p></section>\n",
        words::limit_word(verdict.limit),
        escape(&verdict.why)
    )
}

pub(super) fn warnings(results: &Results) -> String {
    let warnings = words::warnings(results);
    if warnings.is_empty() {
        return String::new();
    }
    let items: String = warnings.iter().map(|warning| format!("<li>{}</li>", escape(warning))).collect();
    format!("<ul class=\"warnings\">{items}</ul>\n")
}

pub(super) fn cards(results: &Results) -> String {
    let (requests, latency) = (&results.requests, &results.latency_ms);
    let errors = requests.errors + requests.timeouts + requests.unexpected;
    let offered = requests.offered_per_s.map_or_else(
        || format!("{} answered", count(requests.completed)),
        |rate| format!("of {} offered", figure(rate)),
    );
    let of_all = format!(
        "{} % of {}",
        figure(errors as f64 * 100.0 / requests.sent.max(1) as f64),
        count(requests.sent)
    );
    let all = [
        ("Requests/s", whole_or_figure(requests.rate_per_s), offered, ""),
        (
            "Median latency",
            milliseconds(latency.percentile_ms(50.0)),
            format!("mean {}", milliseconds(latency.mean_ms())),
            "",
        ),
        (
            "99 % latency",
            milliseconds(latency.percentile_ms(99.0)),
            format!("99.9 %: {}", milliseconds(latency.percentile_ms(99.9))),
            "",
        ),
        (
            "Longest",
            milliseconds(latency.max_ms()),
            format!("deviation {}", milliseconds(latency.stdev_ms())),
            "",
        ),
        ("Errors", count(errors), of_all, if errors > 0 { " trouble" } else { "" }),
        (
            "Read",
            format!("{}/s", bytes(results.bytes.read as f64 / results.duration_s.max(f64::MIN_POSITIVE))),
            format!("{} in all", bytes(results.bytes.read as f64)),
            "",
        ),
    ];
    let mut html = String::from("<div class=\"cards\">");
    for (name, value, beside, tone) in all {
        let _ = write!(
            html,
            "<div class=\"card{tone}\"><p class=\"name\">{name}</p><p class=\"value\">{}</p><p class=\"beside\">{}</p></div>",
            escape(&value),
            escape(&beside)
        );
    }
    html + "</div>\n"
}

fn whole_or_figure(value: f64) -> String {
    if value >= 100.0 { whole(value) } else { figure(value) }
}

/// One series over the seconds.
fn by_second(seconds: &[Second], name: &str, colour: u8, look: LineStyle, of: fn(&Second) -> f64) -> Series {
    let points = seconds.iter().map(|second| (second.second as f64, of(second))).collect();
    Series { name: name.into(), colour, look, points }
}

/// Only seconds in which something was answered have a latency.
fn answered(mut series: Series, seconds: &[Second]) -> Series {
    let empty = |x: f64| seconds.iter().any(|second| second.second as f64 == x && second.completed == 0);
    series.points.retain(|(x, _)| !empty(*x));
    series
}

pub(super) fn over_time(results: &Results) -> String {
    let seconds = results.whole_seconds();
    let mut rate = vec![by_second(seconds, "answered", 1, LineStyle::Area, |second| second.completed as f64)];
    if results.model == Model::Open {
        rate.push(by_second(seconds, "sent", 3, LineStyle::Dashed, |second| second.sent as f64));
    }
    if seconds.iter().any(|second| second.errors + second.timeouts > 0) {
        rate.push(by_second(seconds, "errors and time-outs", 4, LineStyle::Line, |second| {
            (second.errors + second.timeouts) as f64
        }));
    }
    let throughput = chart("Requests per second", rate, short);
    let latency = [
        ("50 %", 1, (|second| second.p50_ms) as fn(&Second) -> f64),
        ("90 %", 2, |second| second.p90_ms),
        ("99 %", 3, |second| second.p99_ms),
        ("longest", 4, |second| second.max_ms),
    ];
    let latency = latency
        .map(|(name, colour, of)| answered(by_second(seconds, name, colour, LineStyle::Line, of), seconds));
    let latency = Chart { logarithmic: true, ..chart("Latency", latency.into(), milliseconds) };
    section("Over time", &(throughput.html() + &latency.html()))
}

fn chart(title: &str, series: Vec<Series>, unit: fn(f64) -> String) -> Chart {
    Chart { title: title.into(), across: Across::Time, logarithmic: false, top: 0.0, unit, series }
}

pub(super) fn percentiles(results: &Results) -> String {
    if results.latency_ms.count() == 0 {
        return String::new();
    }
    let mut series = vec![curve("latency", 1, LineStyle::Area, &results.latency_ms)];
    if let Some(from_sent) = &results.latency_from_sent_ms {
        series[0].name = "from the time due".into();
        series.push(curve("from the time sent, which hides stalls", 3, LineStyle::Dashed, from_sent));
    }
    let (low, high) = (results.latency_ms.percentile_ms(50.0), results.latency_ms.max_ms());
    let logarithmic = low > 0.0 && high / low > 50.0;
    // An area below a logarithmic line means nothing.
    if logarithmic {
        series[0].look = LineStyle::Line;
    }
    let chart =
        Chart { across: Across::Nines, logarithmic, ..chart("Latency by percentile", series, milliseconds) };
    let note = words::hidden_note(results).map(|note| format!("<p class=\"note\">{}</p>\n", escape(&note)));
    section("Percentiles", &(chart.html() + &note.unwrap_or_default() + &figures::percentiles(results)))
}

/// The curve ends where there are too few samples for a percentile.
fn curve(name: &str, colour: u8, look: LineStyle, latency: &Latency) -> Series {
    let nines = (latency.count().max(10) as f64).log10();
    let steps = (nines / CURVE_STEP).floor() as usize;
    let at = |nines: f64| (nines, latency.percentile_ms(100.0 - 100.0 * 10f64.powf(-nines)));
    let mut points: Vec<(f64, f64)> = (0..=steps).map(|step| at(step as f64 * CURVE_STEP)).collect();
    if let Some(last) = points.last_mut() {
        last.1 = latency.max_ms();
    }
    Series { name: name.into(), colour, look, points }
}

pub(super) fn hosts(results: &Results) -> String {
    let mut html = String::new();
    for host in results.hosts.iter().filter(|host| !host.seconds.is_empty()) {
        let role = role_word(host.role);
        let name = if host.name.is_empty() { String::new() } else { format!(" · {}", escape(&host.name)) };
        let cores = words::plural(u64::from(host.cores), "core");
        let memory = bytes(host.memory_bytes as f64);
        let speed = host.network_bits_per_s.map(|bits| format!(" · {} Mbit/s", whole(bits as f64 / 1e6)));
        let _ = writeln!(
            html,
            "<div class=\"host\"><h3 class=\"machine\">The {role}{name} <small>{cores} · {memory}{}</small></h3>{}{}{}{}</div>",
            speed.unwrap_or_default(),
            cpu(host).html(),
            cores_bar(host),
            network(host).html(),
            figures::host(host),
        );
    }
    section("CPU and network", &html)
}

fn by_host_second(
    host: &Host,
    name: &str,
    colour: u8,
    look: LineStyle,
    of: impl Fn(&HostSecond) -> f64,
) -> Series {
    let points = host.seconds.iter().map(|second| (second.second as f64, of(second))).collect();
    Series { name: name.into(), colour, look, points }
}

fn cpu(host: &Host) -> Chart {
    let cores = f64::from(host.cores.max(1));
    let role = role_word(host.role);
    let mut series = vec![
        by_host_second(host, "machine", 2, LineStyle::Area, |second| f64::from(second.cpu_percent) / cores),
        by_host_second(host, &format!("the {role}'s process"), 1, LineStyle::Line, |second| {
            f64::from(second.process_cpu_percent) / cores
        }),
    ];
    if host.seconds.iter().any(|second| second.stolen_percent >= cores as f32) {
        series.push(by_host_second(host, "stolen", 4, LineStyle::Line, |second| {
            f64::from(second.stolen_percent) / cores
        }));
    }
    Chart { top: 100.0, ..chart("CPU, out of all cores", series, |value| format!("{} %", figure(value))) }
}

/// The mean of each core, as bars: one that is full among idle ones is a limit too.
fn cores_bar(host: &Host) -> String {
    let number = host.seconds.iter().map(|second| second.core_percents.len()).max().unwrap_or(0);
    let mut html = String::new();
    for core in 0..number {
        let busy = host.seconds.iter().filter_map(|second| second.core_percents.get(core));
        let mean = busy.map(|percent| f64::from(*percent)).sum::<f64>() / host.seconds.len() as f64;
        let _ = write!(
            html,
            "<li title=\"core {core}: {mean:.0} %\"><i style=\"height:{:.0}%\"></i><span>{mean:.0}</span></li>",
            mean.clamp(0.0, 100.0)
        );
    }
    if html.is_empty() {
        html
    } else {
        format!("<p class=\"small\">Each core, mean, per cent</p><ul class=\"cores\">{html}</ul>")
    }
}

fn network(host: &Host) -> Chart {
    let series = vec![
        by_host_second(host, "in", 1, LineStyle::Line, |second| second.network_read_bytes as f64),
        by_host_second(host, "out", 3, LineStyle::Line, |second| second.network_written_bytes as f64),
    ];
    chart("Network, bytes per second, all interfaces", series, bytes)
}

pub(super) fn explanation(results: &Results) -> String {
    let body = format!(
        "<p>{}</p><p>Percentiles come from a histogram of every answer (0.1 % precise), not from samples; lines over time are of each second. \
         Hover over a chart for its figures.</p>\n",
        escape(&words::model_note(results))
    );
    section("How this was measured", &body)
}
