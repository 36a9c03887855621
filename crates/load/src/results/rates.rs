//! Rates over the seconds of a run.

use crate::percentiles::percentile_of;

/// Requests a second, over the seconds of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// 1 %.
    pub p1: f64,
    /// 2.5 %.
    pub p2_5: f64,
    /// Median.
    pub p50: f64,
    /// 97.5 %.
    pub p97_5: f64,
    /// Arithmetic mean of the seconds.
    pub mean: f64,
    /// Standard deviation.
    pub stdev: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

impl Rates {
    /// The statistics of these figures, one figure a second.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Rates {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len().max(1) as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let variance = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Rates {
            p1: percentile_of(&sorted, 1.0),
            p2_5: percentile_of(&sorted, 2.5),
            p50: percentile_of(&sorted, 50.0),
            p97_5: percentile_of(&sorted, 97.5),
            mean,
            stdev: variance.sqrt(),
            min: percentile_of(&sorted, 0.0),
            max: percentile_of(&sorted, 100.0),
        }
    }
}
