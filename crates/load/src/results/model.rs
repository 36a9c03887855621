//! When requests are sent: the closed and the open model.

use serde::{Deserialize, Serialize};
use std::fmt;

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// When the one before was answered: latency counts from sending.
    #[default]
    Closed,
    /// When they are due, answered or not: latency counts from the time due.
    Open,
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Model::Closed => "closed",
            Model::Open => "open",
        })
    }
}
