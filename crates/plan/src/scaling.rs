//! The Universal Scalability Law (Gunther, 1993) over a sweep: X(N) = λN / (1 + σ(N−1) + κN(N−1)).
//!
//! λ is the rate of one worker alone, σ the part of the work that only one worker can do at a time, κ the
//! cost of each pair of workers. N/X(N) is linear in the coefficients, so the fit is ordinary least
//! squares; neither σ nor κ may be negative. Fewer points than coefficients leave the higher ones 0: such
//! a prediction is an upper bound.

use crate::invalid_figures::InvalidFigures;

/// A measured point of a sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Workers, cores or machines.
    pub workers: f64,
    /// Their requests a second.
    pub rate_per_s: f64,
}

/// A fitted law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    /// Requests a second of one worker alone.
    pub lambda_per_s: f64,
    /// The part of the work that only one worker can do at a time.
    pub sigma: f64,
    /// The cost of each pair of workers.
    pub kappa: f64,
    /// The fewest and the most workers that were measured.
    pub measured: (f64, f64),
}

impl Law {
    /// Fits a sweep.
    ///
    /// # Errors
    /// When there is no point, or one is not positive, or the points do not fit the law.
    pub fn fit(points: &[Point]) -> Result<Law, InvalidFigures> {
        if let Some(point) = points.iter().find(|point| !(point.workers >= 1.0 && point.rate_per_s > 0.0)) {
            return Err(format!("{}={} is no point of a sweep", point.workers, point.rate_per_s).into());
        }
        let mut counts: Vec<f64> = points.iter().map(|point| point.workers).collect();
        counts.sort_by(f64::total_cmp);
        counts.dedup();
        let (Some(first), Some(last)) = (counts.first(), counts.last()) else {
            return Err("a sweep needs a point".into());
        };
        // The coefficients that are fitted: the whole law, then without κ, without σ, and without
        // both.
        let candidates = [vec![0, 1, 2], vec![0, 1], vec![0, 2], vec![0]];
        let fitted =
            candidates.iter().filter(|columns| columns.len() <= counts.len()).filter_map(|columns| {
                let law = solve(points, columns)?;
                let is_sound = law.iter().all(|coefficient| *coefficient >= 0.0) && law[0] > 0.0;
                is_sound.then(|| (law, residual(points, &law)))
            });
        let best = fitted.min_by(|one, other| one.1.total_cmp(&other.1));
        let Some(([a, b, c], _)) = best else { return Err("the sweep does not fit the law".into()) };
        Ok(Law { lambda_per_s: 1.0 / a, sigma: b / a, kappa: c / a, measured: (*first, *last) })
    }

    /// Requests a second of `workers` workers.
    pub fn rate_per_s(&self, workers: f64) -> f64 {
        let contention = self.sigma * (workers - 1.0);
        let coherence = self.kappa * workers * (workers - 1.0);
        self.lambda_per_s * workers / (1.0 + contention + coherence)
    }

    /// Whether this number of workers is outside the measured range.
    pub fn is_extrapolated(&self, workers: f64) -> bool {
        workers < self.measured.0 || workers > self.measured.1
    }

    /// The number of workers with the highest rate; `None`: each additional worker raises the rate.
    pub fn peak_workers(&self) -> Option<f64> {
        (self.kappa > 0.0 && self.sigma < 1.0).then(|| ((1.0 - self.sigma) / self.kappa).sqrt())
    }
}

/// The terms of N/X(N): 1, N−1, N(N−1).
fn terms(workers: f64) -> [f64; 3] {
    [1.0, workers - 1.0, workers * (workers - 1.0)]
}

fn residual(points: &[Point], law: &[f64; 3]) -> f64 {
    let miss = |point: &Point| {
        let terms = terms(point.workers);
        let fitted: f64 = terms.iter().zip(law).map(|(term, coefficient)| term * coefficient).sum();
        // Relative errors, so that points of many workers do not outweigh those of one.
        (fitted * point.rate_per_s / point.workers - 1.0).powi(2)
    };
    points.iter().map(miss).sum()
}

/// The coefficients of these terms by the normal equations, each point weighted by its rate; 0 for others.
fn solve(points: &[Point], columns: &[usize]) -> Option<[f64; 3]> {
    let size = columns.len();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for point in points {
        let weight = point.rate_per_s / point.workers;
        let terms = terms(point.workers).map(|term| term * weight);
        for (row, &one) in columns.iter().enumerate() {
            for (column, &other) in columns.iter().enumerate() {
                matrix[row][column] += terms[one] * terms[other];
            }
            matrix[row][size] += terms[one];
        }
    }
    for pivot in 0..size {
        let best =
            (pivot..size).max_by(|a, b| matrix[*a][pivot].abs().total_cmp(&matrix[*b][pivot].abs()))?;
        matrix.swap(pivot, best);
        if matrix[pivot][pivot].abs() < 1e-12 {
            return None;
        }
        let above = matrix[pivot].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(at, _)| *at != pivot) {
            let factor = row[pivot] / above[pivot];
            row.iter_mut().zip(&above).for_each(|(value, pivot)| *value -= factor * pivot);
        }
    }
    let mut law = [0.0; 3];
    for (row, &column) in columns.iter().enumerate() {
        law[column] = matrix[row][size] / matrix[row][row];
    }
    Some(law)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(law: Law, counts: &[f64]) -> Vec<Point> {
        counts.iter().map(|&workers| Point { workers, rate_per_s: law.rate_per_s(workers) }).collect()
    }

    #[test]
    fn a_law_is_found_again_from_its_own_points() {
        let law = Law { lambda_per_s: 50_000.0, sigma: 0.03, kappa: 0.0005, measured: (1.0, 16.0) };
        let found = Law::fit(&sweep(law, &[1.0, 2.0, 4.0, 8.0, 16.0])).expect("a sweep");
        assert!((found.lambda_per_s - 50_000.0).abs() < 1.0, "{found:?}");
        assert!((found.sigma - 0.03).abs() < 1e-6 && (found.kappa - 0.0005).abs() < 1e-8, "{found:?}");
        assert!((found.peak_workers().expect("a peak") - 44.05).abs() < 0.01, "{found:?}");
        assert!(found.is_extrapolated(32.0) && !found.is_extrapolated(3.0));
    }

    #[test]
    fn few_points_leave_the_higher_terms_out() {
        let one = Law::fit(&[Point { workers: 1.0, rate_per_s: 1_000.0 }]).expect("a point");
        assert!((one.rate_per_s(4.0) - 4_000.0).abs() < 1e-6 && one.peak_workers().is_none(), "{one:?}");
        let again = Law::fit(&[1_000.0, 1_020.0].map(|rate_per_s| Point { workers: 1.0, rate_per_s }));
        assert!((again.expect("two runs of one").rate_per_s(1.0) - 1_010.0).abs() < 1.0);
        let two = [(1.0, 1_000.0), (2.0, 1_900.0)].map(|(workers, rate_per_s)| Point { workers, rate_per_s });
        let two = Law::fit(&two).expect("two points");
        assert!((two.rate_per_s(2.0) - 1_900.0).abs() < 1.0, "{two:?}");
    }

    #[test]
    fn a_sweep_that_is_better_than_linear_gets_no_negative_cost() {
        let points = [(1.0, 1_000.0), (2.0, 2_100.0), (4.0, 4_300.0)];
        let law = Law::fit(&points.map(|(workers, rate_per_s)| Point { workers, rate_per_s }));
        let law = law.expect("it fits");
        assert_eq!((law.sigma, law.kappa), (0.0, 0.0));
    }

    #[test]
    fn what_is_no_sweep_is_named() {
        assert!(Law::fit(&[]).is_err());
        let error = Law::fit(&[Point { workers: 0.0, rate_per_s: 5.0 }]).expect_err("no workers").to_string();
        assert!(error.contains("0=5"), "{error}");
    }
}
