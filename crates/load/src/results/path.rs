//! The network between a tester and a server.

use serde::{Deserialize, Serialize};

/// What it carried before the run, while all testers sent at the same time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// The agent's address, or `this machine`.
    pub tester: String,
    /// The address of the agent beside the server.
    pub server: String,
    /// Bits a second of TCP, without headers.
    pub to_server_bits_per_s: f64,
    /// The same, the other way.
    pub from_server_bits_per_s: f64,
    /// Small datagrams that arrived a second; `None` when none did.
    pub to_server_packets_per_s: Option<f64>,
    /// The same, the other way.
    pub from_server_packets_per_s: Option<f64>,
}
