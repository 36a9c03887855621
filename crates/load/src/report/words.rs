//! The sentences that every report has: which model was used and what it hides, which rate was not
//! reached, what ran out.

use super::format::{count, figure, milliseconds, span};
use crate::RATE_REACHED;
use crate::results::{Limit, Model, Results};

/// The name of a limit.
pub fn limit_word(limit: Limit) -> &'static str {
    match limit {
        Limit::ServerCpu => "server CPU",
        Limit::TesterCpu => "tester CPU",
        Limit::Network => "network",
        Limit::Database => "database",
        Limit::StolenCpu => "stolen CPU",
        Limit::Connections => "connections",
        Limit::RateMet => "rate met",
        Limit::Unknown => "nothing seen",
    }
}

/// Which model a run used, and what that means for its latencies.
pub fn model_note(results: &Results) -> String {
    match results.model {
        Model::Closed => "Closed model: each connection sends its next request when it has its answer, so a server that \
                          stalls is asked less while it stalls. These latencies are response times and hide stalls; \
                          -R RATE (open model) shows what waiting clients would have seen."
            .into(),
        Model::Open => "Open model: requests are due at a given rate, answered or not, and latency counts from the time \
                        a request was due, so stalls show in full."
            .into(),
    }
}

/// How the load was made, in one line.
pub(super) fn load_line(results: &Results) -> String {
    let load = &results.load;
    let mut parts = vec![format!("{} model", results.model)];
    if let Some(rate) = load.rate_per_s {
        parts.push(format!("{} requests/s asked for", figure(rate)));
    }
    parts.push(plural(load.connections, "connection"));
    if load.pipelining > 1 {
        parts.push(format!("{} pipelined", load.pipelining));
    }
    if load.workers > 0 {
        parts.push(plural(load.workers, "worker"));
    }
    if !results.agents.is_empty() {
        parts.push(plural(results.agents.len() as u64, "agent"));
    }
    parts.push(span(results.duration_s));
    if load.ramp_s > 0.0 {
        parts.push(format!("risen to over {}", span(load.ramp_s)));
    }
    if results.warmup_s > 0.0 {
        parts.push(format!("after {} of warm-up", span(results.warmup_s)));
    }
    parts.join(" · ")
}

pub(super) fn plural(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// What must not be overlooked: a rate that was not reached, a run that was cut, agents that were
/// lost, and the notes of the run.
pub fn warnings(results: &Results) -> Vec<String> {
    let mut warnings = Vec::new();
    let requests = &results.requests;
    if !results.complete {
        let why = results.partial_reason.as_deref().unwrap_or("it did not go to its end");
        warnings.push(format!("Partial: {why}. The figures are of what was measured until then."));
    }
    for agent in results.agents.iter().filter(|agent| !agent.complete) {
        let why = agent.reason.as_deref().unwrap_or("it was lost");
        warnings
            .push(format!("Agent {} is not complete: {why}. What it had delivered is counted.", agent.name));
    }
    if let Some(offered) =
        requests.offered_per_s.filter(|offered| requests.rate_per_s < RATE_REACHED * offered)
    {
        let why = results.verdict.as_ref().map_or_else(
            || "the server, or the connections, could take no more".to_owned(),
            |verdict| match verdict.limit {
                Limit::Unknown => "why cannot be told from what was seen".to_owned(),
                limit => format!("limited by {}", limit_word(limit)),
            },
        );
        warnings.push(format!(
            "The rate was not reached: {} of {} requests/s ({:.1} %), {why}. Latencies above hold the waiting that this caused.",
            figure(requests.rate_per_s),
            figure(offered),
            requests.rate_per_s * 100.0 / offered
        ));
    }
    if let Some((status, number)) = results.statuses.first_key_value()
        && *status >= 400
        && *number == requests.completed
    {
        warnings.push(format!(
            "Every answer was {status}: this run measures how fast the server refuses, not what it serves."
        ));
    }
    let lost = [
        (requests.unexpected, "answered with a status that was not expected"),
        (requests.timeouts, "not answered in time"),
        (requests.errors, "lost with their connection, or answered with garbage"),
        (requests.never_sent, "due but never sent: every connection was taken"),
    ];
    for (number, what) in lost.iter().filter(|(number, _)| *number > 0) {
        warnings.push(format!("{} {what}.", plural(*number, "request")));
    }
    if let Some(text) = &results.first_malformed {
        warnings.push(format!("The first answer that was none: {text}"));
    }
    warnings.extend(results.notes.iter().filter(|note| !is_said_already(note)).cloned());
    warnings
}

/// Whether a report states the note elsewhere, with the verdict's reason: notes on the model and on
/// the rate.
fn is_said_already(note: &str) -> bool {
    note.starts_with("closed model:") || note.starts_with("the rate was not reached:")
}

/// Open model: the latency that measuring from the time of sending would hide.
pub(super) fn hidden_note(results: &Results) -> Option<String> {
    let from_sent = results.latency_from_sent_ms.as_ref()?;
    let [due, sent] = [&results.latency_ms, from_sent].map(|latency| latency.percentile_ms(99.0));
    (sent > 0.0 && due > 1.1 * sent).then(|| {
        format!(
            "Measured from the time of sending, as many testers do, p99 would have read {} instead of {}.",
            milliseconds(sent),
            milliseconds(due)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Requests;

    #[test]
    fn a_report_of_refusals_says_so() {
        for (statuses, says) in [
            (&[(404, 10)][..], true),
            (&[(404, 9), (200, 1)], false),
            (&[(404, 9), (503, 1)], false),
            (&[(200, 10)], false),
            (&[], false),
        ] {
            let completed = statuses.iter().map(|(_, number)| number).sum();
            let requests = Requests { completed, ..Requests::default() };
            let results =
                Results { statuses: statuses.iter().copied().collect(), requests, ..Results::default() };
            let found = warnings(&results).iter().any(|warning| warning.starts_with("Every answer was 404:"));
            assert_eq!(found, says, "{statuses:?}");
        }
    }
}
