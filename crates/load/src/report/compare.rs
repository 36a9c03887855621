//! Two runs side by side, and which of their differences are more than noise.
//!
//! The noise of a figure is estimated from its own run: the run is cut into up to ten blocks of
//! whole seconds, the figure is computed for each block, and the spread of the blocks divided by
//! the root of their number is the standard error (the method of batch means: blocks of several
//! seconds are nearly independent where single seconds are not). A difference counts when it is
//! more than three standard errors of both runs together (with ten blocks each, chance alone does
//! that less than once in a hundred times), and more than the precision of the histograms. For runs
//! of fewer than three seconds the noise is unknown.

use super::format::{bytes, figure, milliseconds};
use crate::Latency;
use crate::results::{Results, Second};

/// Blocks that a run is cut into.
const BLOCKS_MAX: usize = 10;
/// Fewer blocks say nothing about noise.
const BLOCKS_MIN: usize = 3;
/// Standard errors that chance does not reach: Student's t for 18 degrees of freedom is 2.88 at 99 %.
const STANDARD_ERRORS: f64 = 3.0;
/// Differences of latencies below this are within the buckets of the seconds (two digits).
const LATENCY_PRECISION: f64 = 0.01;

/// A figure of two runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// The name of the figure.
    pub name: String,
    /// The value in the run that is compared with.
    pub before: f64,
    /// The value in this run.
    pub now: f64,
    /// Differences up to this may be chance; `None` when the noise is unknown.
    pub noise: Option<f64>,
    /// Whether a higher value is better.
    pub more_is_better: bool,
    unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    PerSecond,
    Time,
    Bytes,
    Percent,
}

/// Two runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    differences: Vec<Difference>,
    notes: Vec<String>,
}

impl Comparison {
    /// `now` against `before`.
    pub fn of(before: &Results, now: &Results) -> Comparison {
        let (old, new) = (Blocks::of(before), Blocks::of(now));
        let mut differences = vec![
            difference(
                "Req/Sec",
                Unit::PerSecond,
                [&old, &new],
                |block| block.rate_per_s,
                [before.requests.rate_per_s, now.requests.rate_per_s],
            ),
            difference(
                "Bytes/Sec",
                Unit::Bytes,
                [&old, &new],
                |block| block.bytes_per_s,
                [per_second(before), per_second(now)],
            ),
        ];
        differences.push(difference(
            "Latency mean",
            Unit::Time,
            [&old, &new],
            |b| b.latency.mean_ms(),
            [before.latency_ms.mean_ms(), now.latency_ms.mean_ms()],
        ));
        for percentile in [50.0, 90.0, 97.5, 99.0, 99.9] {
            let of = |latency: &Latency| latency.percentile_ms(percentile);
            let name = format!("Latency {}%", super::format::percentile(percentile));
            differences.push(difference(
                &name,
                Unit::Time,
                [&old, &new],
                |b| of(&b.latency),
                [of(&before.latency_ms), of(&now.latency_ms)],
            ));
        }
        let max = [before.latency_ms.max_ms(), now.latency_ms.max_ms()];
        // One sample has no spread and little meaning.
        differences.push(Difference {
            noise: None,
            ..difference("Latency max", Unit::Time, [&old, &new], |_| 0.0, max)
        });
        differences.push(difference(
            "Errors",
            Unit::Percent,
            [&old, &new],
            |block| block.errors_percent,
            [errors_percent(before), errors_percent(now)],
        ));
        Comparison { differences, notes: notes(before, now) }
    }

    /// Figure by figure.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// What makes the two runs hard to compare.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The differences that are more than noise.
    pub fn real(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|difference| difference.exceeds_noise())
    }
}

impl Difference {
    /// Whether the difference is larger than the noise.
    pub fn exceeds_noise(&self) -> bool {
        self.noise.is_some_and(|noise| (self.now - self.before).abs() > noise)
    }

    /// `better`, `worse`, `noise`, or an empty text when the noise is unknown.
    pub fn judgement(&self) -> &'static str {
        match self.noise {
            None => "",
            Some(_) if !self.exceeds_noise() => "noise",
            Some(_) if (self.now > self.before) == self.more_is_better => "better",
            Some(_) => "worse",
        }
    }

    /// A figure with its unit.
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::PerSecond => figure(value),
            Unit::Time => milliseconds(value),
            Unit::Bytes => bytes(value),
            Unit::Percent => format!("{} %", figure(value)),
        }
    }

    /// The change in per cent; of per cents, in points.
    pub fn change(&self) -> String {
        match self.unit {
            Unit::Percent => format!("{:+.2} points", self.now - self.before),
            _ if self.before == 0.0 => "–".into(),
            _ => format!("{:+.1} %", (self.now - self.before) * 100.0 / self.before),
        }
    }

    /// The noise, with its unit.
    pub fn noise_text(&self) -> String {
        self.noise.map_or_else(|| "–".into(), |noise| format!("± {}", self.show(noise)))
    }
}

fn difference(
    name: &str,
    unit: Unit,
    [old, new]: [&Blocks; 2],
    of_block: impl Fn(&Block) -> f64,
    [before, now]: [f64; 2],
) -> Difference {
    let errors = [old, new].map(|blocks| blocks.standard_error(&of_block));
    let noise = match errors {
        [Some(old), Some(new)] => {
            let spread = STANDARD_ERRORS * old.hypot(new);
            let precision = if unit == Unit::Time { LATENCY_PRECISION * before.max(now) } else { 0.0 };
            Some(spread.max(precision))
        }
        _ => None,
    };
    let more_is_better = matches!(unit, Unit::PerSecond | Unit::Bytes);
    Difference { name: name.to_owned(), before, now, noise, more_is_better, unit }
}

struct Block {
    rate_per_s: f64,
    bytes_per_s: f64,
    errors_percent: f64,
    latency: Latency,
}

impl Block {
    fn of(seconds: &[Second]) -> Block {
        let length = seconds.len().max(1) as f64;
        let sum = |figure: fn(&Second) -> u64| seconds.iter().map(figure).sum::<u64>() as f64;
        let mut latency = Latency::coarse();
        for second in seconds.iter().filter_map(|second| second.latency.unpack()) {
            latency.merge(&second);
        }
        let lost = sum(|second| second.errors + second.timeouts);
        Block {
            rate_per_s: sum(|second| second.completed) / length,
            bytes_per_s: sum(|second| second.bytes.read) / length,
            errors_percent: lost * 100.0 / (sum(|second| second.completed) + lost).max(1.0),
            latency,
        }
    }
}

struct Blocks(Vec<Block>);

impl Blocks {
    fn of(results: &Results) -> Blocks {
        let seconds = results.whole_seconds();
        let number = seconds.len().min(BLOCKS_MAX);
        let cut = |block: usize| seconds.len() * block / number;
        Blocks((0..number).map(|block| Block::of(&seconds[cut(block)..cut(block + 1)])).collect())
    }

    fn standard_error(&self, figure: impl Fn(&Block) -> f64) -> Option<f64> {
        if self.0.len() < BLOCKS_MIN {
            return None;
        }
        let number = self.0.len() as f64;
        let mean = self.0.iter().map(&figure).sum::<f64>() / number;
        let variance =
            self.0.iter().map(|block| (figure(block) - mean).powi(2)).sum::<f64>() / (number - 1.0);
        Some((variance / number).sqrt())
    }
}

fn per_second(results: &Results) -> f64 {
    results.bytes.read as f64 / results.duration_s.max(f64::MIN_POSITIVE)
}

fn errors_percent(results: &Results) -> f64 {
    let requests = &results.requests;
    (requests.errors + requests.timeouts) as f64 * 100.0 / requests.sent.max(1) as f64
}

fn notes(before: &Results, now: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differs = |what: &str, old: String, new: String| {
        if old != new {
            notes.push(format!("The two runs differ in {what}: {old} before, {new} now."));
        }
    };
    differs("model", before.model.to_string(), now.model.to_string());
    differs("target", before.target.clone(), now.target.clone());
    differs("connections", before.load.connections.to_string(), now.load.connections.to_string());
    differs("pipelining", before.load.pipelining.to_string(), now.load.pipelining.to_string());
    let rate = |results: &Results| results.load.rate_per_s.map_or("none".into(), figure);
    differs("rate asked for", rate(before), rate(now));
    for (which, results) in [("before", before), ("now", now)] {
        if results.whole_seconds().len() < BLOCKS_MIN {
            notes.push(format!("The run {which} is too short for its noise to be told."));
        }
    }
    notes
}
