//! `--find-max`: the highest rate of the open model at which a condition holds.
//!
//! Rates lie on a grid of steps of [`STEP`]: doubling finds a rate that is too high, halving finds
//! the last one on the grid that is not. The result for a server of known capacity is right to one
//! step, and two searches find the same step.

use crate::results::Results;
use crate::run::RATE_REACHED;
use std::io;

/// One step of the grid: one per cent.
pub const STEP: f64 = 1.01;

/// Where the doubling begins, requests a second.
const FIRST_PER_S: f64 = 100.0;
/// Doubling, in steps of the grid: 1.01^70 = 2.007.
const DOUBLING_STEPS: i32 = 70;
/// The highest rate that is tried: 1.01^1389 = a million times the first.
const STEPS_MAX: i32 = 1389;
/// The lowest: a hundredth of the first.
const STEPS_MIN: i32 = -463;

/// One rate that was tried.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    /// Requests due a second.
    pub rate_per_s: f64,
    /// Whether it holds.
    pub holds: bool,
    /// The figures of the condition, or why it does not hold.
    pub why: String,
}

/// The result of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchResult {
    /// The highest rate that holds; `None` when not even the lowest does.
    pub rate_per_s: Option<f64>,
    /// Whether the capacity may be higher, because the condition still held at the highest rate
    /// tried.
    pub is_bounded: bool,
    /// All rates that were tried, in order.
    pub tried: Vec<Tried>,
}

/// The rate at a step of the grid, rounded to a tenth.
fn rate_at(step: i32) -> f64 {
    (FIRST_PER_S * STEP.powi(step) * 10.0).round() / 10.0
}

/// Searches. `trial` drives the server at a rate and returns whether the condition holds, with its
/// figures. A rate that fails is tried once more, because a short disturbance of this machine is no
/// limit of the server.
///
/// # Errors
/// Those of `trial`.
pub fn search(mut trial: impl FnMut(f64) -> io::Result<(bool, String)>) -> io::Result<SearchResult> {
    let mut tried = Vec::new();
    let mut holds = |step: i32| -> io::Result<bool> {
        for _ in 0..2 {
            let (holds, why) = trial(rate_at(step))?;
            tried.push(Tried { rate_per_s: rate_at(step), holds, why });
            if holds {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (mut good, mut bad) = (None, None);
    let mut step = 0;
    while bad.is_none() || good.is_none() {
        if holds(step)? {
            good = Some(step);
            if step == STEPS_MAX {
                return Ok(SearchResult { rate_per_s: Some(rate_at(step)), is_bounded: false, tried });
            }
            step = (step + DOUBLING_STEPS).min(STEPS_MAX);
        } else {
            bad = Some(step);
            if step == STEPS_MIN {
                return Ok(SearchResult { rate_per_s: None, is_bounded: true, tried });
            }
            step = (step - DOUBLING_STEPS).max(STEPS_MIN);
        }
        if good.is_some() && bad.is_some() {
            break;
        }
    }
    let (mut good, mut bad) = (good.unwrap_or(STEPS_MIN), bad.unwrap_or(STEPS_MAX));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle)? { good = middle } else { bad = middle }
    }
    Ok(SearchResult { rate_per_s: Some(rate_at(good)), is_bounded: true, tried })
}

/// Why a trial does not count; `None` when its rate was really sent and answered.
pub fn shortfall(results: &Results) -> Option<String> {
    let offered = results.requests.offered_per_s.unwrap_or(0.0);
    if !results.complete {
        return Some(results.partial_reason.clone().unwrap_or_else(|| "not complete".into()));
    }
    (results.requests.rate_per_s < RATE_REACHED * offered).then(|| {
        let part = results.requests.rate_per_s / offered.max(f64::MIN_POSITIVE) * 100.0;
        format!("{part:.1} % of the rate were answered in time")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(capacity: f64) -> SearchResult {
        search(|rate| Ok((rate <= capacity, String::new()))).unwrap()
    }

    #[test]
    fn within_a_step_of_any_capacity() {
        for capacity in [1.5, 50.0, 99.0, 100.0, 500.0, 4321.0, 123_456.0, 9_000_000.0] {
            let found = find(capacity);
            let rate = found.rate_per_s.unwrap();
            assert!(rate <= capacity && rate * 1.011 + 0.1 >= capacity, "{capacity}: {found:?}");
            assert!(found.is_bounded && found.tried.len() < 60, "{capacity}: {}", found.tried.len());
            assert_eq!(find(capacity), found);
        }
    }

    #[test]
    fn nothing_and_everything() {
        assert_eq!(find(0.0).rate_per_s, None);
        let all = find(f64::INFINITY);
        assert!(!all.is_bounded && all.rate_per_s.unwrap() > 9e7);
    }

    #[test]
    fn a_hiccup_is_no_limit() {
        let mut hiccup = true;
        let found = search(|rate| {
            Ok((rate <= 500.0 && !(rate == 200.7 && std::mem::take(&mut hiccup)), String::new()))
        });
        assert!(found.unwrap().rate_per_s.unwrap() > 490.0);
    }
}
