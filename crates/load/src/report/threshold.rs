//! `--threshold 'p99<10ms'`: what must hold, or the exit code is 3.
//!
//! `METRIC OPERATOR VALUE`; several are separated by commas. Operators: `<`, `<=`, `>`, `>=`, `==`,
//! `!=`.
//!
//! | metric | value |
//! |---|---|
//! | `p50`, `p97.5`, `p99.99`, …, `min`, `mean`, `max`, `stdev` | a time: `250us`, `10ms`, `1.5s` |
//! | `rate` (answers a second) | a number: `1000`, `10k`, `2m`, `/s` may follow |
//! | `rate` | or per cent of the rate offered: `99%` (open model) |
//! | `errors` (lost, timed out, unexpected status), `timeouts`, `unexpected`, `in_flight`, `never_sent` | a number |
//! | `error_rate` (the same errors, out of those sent) | `1%` or `0.01` |
//! | `200`, `404`, `5xx`, … | a number of answers, or per cent of all answers: `2xx>=99.9%` |

use super::error::{Error, Kind};
use super::format::{figure, milliseconds};
use crate::results::Results;
use std::fmt;
use std::str::FromStr;

/// One condition on a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Threshold {
    text: String,
    metric: Metric,
    operator: Operator,
    value: f64,
}

/// A condition and its outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct Checked {
    /// As it was typed.
    pub condition: String,
    /// The measured value, with its unit.
    pub actual: String,
    /// Whether it holds.
    pub held: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Metric {
    /// Milliseconds.
    Percentile(f64),
    Min,
    Mean,
    Max,
    Stdev,
    Rate,
    /// Out of 100.
    RateOfOffered,
    Errors,
    Timeouts,
    Unexpected,
    InFlight,
    NeverSent,
    /// Out of 100.
    ErrorRate,
    /// From the first status to the last.
    Status(u16, u16),
    /// A part of all answers, out of 100.
    StatusPart(u16, u16),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Operator {
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Equal,
    NotEqual,
}

/// Longest first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Operator); 7] = [
    ("<=", Operator::LessOrEqual),
    (">=", Operator::MoreOrEqual),
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    (">", Operator::More),
    ("=", Operator::Equal),
];

impl Threshold {
    /// Reads several conditions, separated by commas.
    ///
    /// # Errors
    /// [`Kind::Argument`] with the invalid part, and the correct form.
    pub fn parse_all(text: &str) -> Result<Vec<Threshold>, Error> {
        text.split(',').map(str::parse).collect()
    }

    /// Whether the run meets the condition.
    pub fn check(&self, results: &Results) -> Checked {
        let actual = self.metric.of(results);
        let held = match self.operator {
            Operator::Less => actual < self.value,
            Operator::LessOrEqual => actual <= self.value,
            Operator::More => actual > self.value,
            Operator::MoreOrEqual => actual >= self.value,
            Operator::Equal => actual == self.value,
            Operator::NotEqual => actual != self.value,
        };
        // A run without answers has no latency; its zero does not meet a bound.
        let measured = !self.metric.is_time() || results.latency_ms.count() > 0;
        let actual = if measured { self.metric.show(actual) } else { "no answers".into() };
        Checked { condition: self.text.clone(), actual, held: held && measured }
    }
}

impl FromStr for Threshold {
    type Err = Error;

    fn from_str(text: &str) -> Result<Threshold, Error> {
        let text = text.trim();
        let wrong = |what: String| Error::new(Kind::Argument, format!("--threshold {text:?}: {what}"));
        let at = text.find(['<', '>', '=', '!']);
        let (name, rest) = at.map(|at| text.split_at(at)).ok_or_else(|| {
            wrong("no condition; write METRIC<VALUE, such as p99<10ms, rate>=10k or errors==0".into())
        })?;
        let (sign, operator) = OPERATORS
            .iter()
            .find(|(sign, _)| rest.starts_with(sign))
            .ok_or_else(|| wrong("the operator must be one of < <= > >= == !=".into()))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), rest[sign.len()..].trim());
        let metric = Metric::named(&name).ok_or_else(|| {
            wrong(format!(
                "no metric {name:?}; there are p0 to p100, min, mean, max, stdev, rate, errors, error_rate, timeouts, \
                 unexpected, in_flight, never_sent, and statuses such as 404 or 5xx"
            ))
        })?;
        let (metric, value) = metric.value(value).map_err(|what| wrong(format!("{value:?} {what}")))?;
        Ok(Threshold { text: text.to_owned(), metric, operator: *operator, value })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Metric {
    fn named(name: &str) -> Option<Metric> {
        Some(match name {
            "min" => Metric::Min,
            "mean" | "avg" => Metric::Mean,
            "max" => Metric::Max,
            "stdev" => Metric::Stdev,
            "rate" => Metric::Rate,
            "errors" => Metric::Errors,
            "timeouts" => Metric::Timeouts,
            "unexpected" => Metric::Unexpected,
            "in_flight" => Metric::InFlight,
            "never_sent" => Metric::NeverSent,
            "error_rate" => Metric::ErrorRate,
            _ => match name.strip_prefix('p') {
                Some(percentile) => {
                    let percentile = percentile.parse().ok().filter(|p| (0.0..=100.0).contains(p))?;
                    Metric::Percentile(percentile)
                }
                None => Metric::status(name)?,
            },
        })
    }

    fn status(name: &str) -> Option<Metric> {
        if let Some(class) = name.strip_suffix("xx") {
            let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
            return Some(Metric::Status(class * 100, class * 100 + 99));
        }
        let status = name.parse().ok().filter(|status| (100..=599).contains(status))?;
        Some(Metric::Status(status, status))
    }

    fn is_time(self) -> bool {
        matches!(self, Metric::Percentile(_) | Metric::Min | Metric::Mean | Metric::Max | Metric::Stdev)
    }

    /// Parses the value in the metric's unit. Per cent turn some metrics into their relative form.
    fn value(self, text: &str) -> Result<(Metric, f64), &'static str> {
        if self.is_time() {
            return Ok((self, time_ms(text)?));
        }
        match (self, text.strip_suffix('%')) {
            (Metric::ErrorRate, Some(percent)) => Ok((self, number(percent)?)),
            (Metric::ErrorRate, None) => Ok((self, number(text)? * 100.0)),
            (Metric::Rate, Some(percent)) => Ok((Metric::RateOfOffered, number(percent)?)),
            (Metric::Rate, None) => Ok((self, number(text.strip_suffix("/s").unwrap_or(text))?)),
            (Metric::Status(first, last), Some(percent)) => {
                Ok((Metric::StatusPart(first, last), number(percent)?))
            }
            (_, Some(_)) => Err("cannot be per cent here; error_rate can"),
            (_, None) => Ok((self, number(text)?)),
        }
    }

    fn of(self, results: &Results) -> f64 {
        let (latency, requests) = (&results.latency_ms, &results.requests);
        let errors = requests.errors + requests.timeouts + requests.unexpected;
        let statuses =
            |first, last| results.statuses.range(first..=last).map(|(_, count)| *count).sum::<u64>();
        let part = |count: u64, all: u64| if all == 0 { 0.0 } else { count as f64 * 100.0 / all as f64 };
        match self {
            Metric::Percentile(percentile) => latency.percentile_ms(percentile),
            Metric::Min => latency.min_ms(),
            Metric::Mean => latency.mean_ms(),
            Metric::Max => latency.max_ms(),
            Metric::Stdev => latency.stdev_ms(),
            Metric::Rate => requests.rate_per_s,
            Metric::RateOfOffered => {
                let offered = requests.offered_per_s.unwrap_or(requests.rate_per_s);
                if offered > 0.0 { requests.rate_per_s * 100.0 / offered } else { 0.0 }
            }
            Metric::Errors => errors as f64,
            Metric::Timeouts => requests.timeouts as f64,
            Metric::Unexpected => requests.unexpected as f64,
            Metric::InFlight => requests.in_flight as f64,
            Metric::NeverSent => requests.never_sent as f64,
            // When nothing was sent, nothing could be reached: all counts as failed.
            Metric::ErrorRate if requests.sent == 0 => 100.0,
            Metric::ErrorRate => part(errors, requests.sent),
            Metric::Status(first, last) => statuses(first, last) as f64,
            Metric::StatusPart(first, last) => part(statuses(first, last), requests.completed),
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            _ if self.is_time() => milliseconds(value),
            Metric::Rate => format!("{}/s", figure(value)),
            Metric::RateOfOffered | Metric::ErrorRate | Metric::StatusPart(..) => {
                format!("{} %", figure(value))
            }
            _ => figure(value),
        }
    }
}

fn time_ms(text: &str) -> Result<f64, &'static str> {
    let units = [("ns", 1e-6), ("us", 1e-3), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3)];
    let found = units.iter().find_map(|(unit, ms)| text.strip_suffix(unit).map(|digits| (digits, ms)));
    let (digits, ms) = found.ok_or("is no time; add a unit: us, ms or s")?;
    Ok(number(digits)? * ms)
}

/// `10`, `1.5k`, `2m`.
fn number(text: &str) -> Result<f64, &'static str> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, times) = match text.strip_suffix(['k', 'm']) {
        Some(digits) if text.ends_with('k') => (digits, 1e3),
        Some(digits) => (digits, 1e6),
        None => (text.as_str(), 1.0),
    };
    let value: f64 = digits.trim().parse().map_err(|_| "is no number")?;
    if value.is_finite() && value >= 0.0 { Ok(value * times) } else { Err("must be zero or more") }
}
