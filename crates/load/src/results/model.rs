//! When requests are sent: the closed and the open model.

use serde::{Deserialize, Serialize};
use std::fmt;

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// When the previous request of the connection was answered. Latency counts from sending.
    #[default]
    Closed,
    /// When requests are due, whether or not earlier ones were answered. Latency counts from the
    /// time due.
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
