//! What a person, a script or a browser sees of a run.
//!
//! Everything here reads one [`Results`](crate::results::Results) and changes nothing: [`tables`] for the terminal,
//! [`page`] for one self-contained HTML file, [`Threshold`] for exit codes, [`Comparison`] for two runs, [`Screen`] for the time
//! in which a run goes on.

mod error;

pub use error::{Error, Kind};
