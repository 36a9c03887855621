//! The measurements of a section: a row of its table, two sides of a comparison.

use crate::measure::{Sample, median_of};
use crate::rows::peers::why;
use std::error::Error;

/// The results of one side.
#[derive(Clone)]
pub struct Measured {
    /// CPU microseconds a request.
    pub cpu_us: f64,
    pub rate_per_s: f64,
    /// Bytes of a request and its answer; 0 when they were not counted.
    pub bytes: f64,
    /// Additional figures, such as a latency.
    pub beside: String,
}

/// One side of a figure, or why there is none.
pub type Cell = Result<Measured, String>;

/// A row of a section's table.
pub struct Figure {
    pub what: String,
    /// The published figure, with the number of its source.
    pub published: &'static str,
    pub theirs: Cell,
    pub ours: Cell,
    /// The rate that cores are extrapolated to.
    pub wanted_per_s: f64,
}

/// The figures of a section.
pub type Figures = Result<Vec<Figure>, Box<dyn Error>>;

/// The results of a sample, whose CPU time includes the stores.
pub fn measured(sample: &Sample) -> Measured {
    let samples = std::slice::from_ref(sample);
    let bytes = (sample.report.bytes.read + sample.report.bytes.written) as f64;
    Measured {
        cpu_us: median_of(samples, |sample| sample.started_cpu_us),
        rate_per_s: sample.report.requests.rate_per_s,
        bytes: bytes / sample.report.requests.completed as f64,
        beside: String::new(),
    }
}

/// As [`measured`], for a sample that may have failed.
pub fn cell(sample: Result<Sample, Box<dyn Error>>) -> Cell {
    sample.as_ref().map(measured).map_err(|error| why(error.as_ref()))
}
