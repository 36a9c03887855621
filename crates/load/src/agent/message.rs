//! The messages between controller and agent; [`super`] describes their order.

use super::probe::count::Counted;
use super::proof::{Nonce, Proof};
use crate::request_source::RequestSource;
use crate::results::{HostSecond, Live, Path, Results, Role, Second};
use crate::settings::Settings;
use crate::target::Target;
use forebay_host::Sample;
use serde::{Deserialize, Serialize};

/// The version of the protocol. Controller and agent must have the same one.
pub(super) const FORMAT: u32 = 4;

/// One agent's part of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AgentJob {
    /// The target. The agent resolves the name, because it may resolve to another address in its
    /// network.
    pub target: Target,
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// This part's connections, amount and share.
    pub settings: Settings,
    pub work: RequestSource,
}

/// What one stream measures; directions are as seen from the tester.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Probe {
    Download,
    Upload,
    /// Datagrams both ways; those of the tester come from this port.
    Packets {
        port: u16,
    },
}

/// From the controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToAgent {
    /// Opens a session, or one stream of a probe.
    Login {
        format: u32,
        nonce: Nonce,
        proof: Proof,
        probe: Option<Probe>,
    },
    Ping,
    Sample,
    Probe {
        place: String,
        streams: usize,
    },
    Job(Box<AgentJob>),
    Start {
        at_unix_ns: u64,
    },
    Cancel,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromAgent {
    Hello { format: u32, nonce: Nonce },
    Welcome { proof: Proof },
    Refused { why: String },
    Pong { unix_ns: u64 },
    Sampled { sample: Box<Sample> },
    Probed { path: Path },
    Counted(Counted),
    Ready,
    Progress { live: Option<Live>, seconds: Vec<Second>, hosts: Vec<(Role, HostSecond)> },
    Done { results: Box<Results>, started_unix_ns: Option<u64> },
    Failed { why: String },
}
