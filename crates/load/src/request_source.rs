//! What the workers of a run send: to HTTP or to Redis servers.

use crate::plan::{PlanTraffic, Requests};
use crate::recorder::Kind;
use crate::redis::{Commands, RedisTraffic};
use crate::response::{HeadParser, Response};
use crate::settings::Settings;
use crate::traffic::Traffic;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Requests or commands. Self-contained, so that it can be sent to agents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RequestSource {
    /// For HTTP.
    #[serde(with = "shared")]
    Requests(Arc<Requests>),
    /// For Redis.
    Commands(Commands),
}

impl RequestSource {
    /// The part of agent `index`, with other random values.
    pub(crate) fn for_agent(&self, index: u64) -> RequestSource {
        match self {
            RequestSource::Requests(requests) => RequestSource::Requests(Arc::new(requests.for_agent(index))),
            RequestSource::Commands(commands) => {
                let seed = commands.seed.wrapping_add(index << 32);
                RequestSource::Commands(Commands { seed, ..commands.clone() })
            }
        }
    }

    /// Whether the work is valid: it may have been received from a controller.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            RequestSource::Requests(requests) => requests.is_sound(),
            RequestSource::Commands(commands) => commands.is_sound(),
        }
    }

    /// For one worker.
    pub(crate) fn traffic(&self, worker: usize, settings: &Settings) -> WorkTraffic {
        match self {
            RequestSource::Requests(requests) => WorkTraffic::Requests(Box::new(requests.traffic(worker))),
            RequestSource::Commands(commands) => {
                WorkTraffic::Commands(Box::new(commands.traffic(worker, settings)))
            }
        }
    }
}

/// Serialises the content of an `Arc`.
mod shared {
    use super::{Arc, Requests};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(requests: &Arc<Requests>, to: S) -> Result<S::Ok, S::Error> {
        requests.as_ref().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Requests>, D::Error> {
        Requests::deserialize(from).map(Arc::new)
    }
}

/// What one worker sends.
pub enum WorkTraffic {
    /// To HTTP servers.
    Requests(Box<PlanTraffic>),
    /// To Redis servers.
    Commands(Box<RedisTraffic>),
}

impl WorkTraffic {
    fn inner(&self) -> &dyn Traffic {
        match self {
            WorkTraffic::Requests(traffic) => &**traffic,
            WorkTraffic::Commands(traffic) => &**traffic,
        }
    }
}

impl Traffic for WorkTraffic {
    #[inline]
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        match self {
            WorkTraffic::Requests(traffic) => traffic.request(connection, out),
            WorkTraffic::Commands(traffic) => traffic.request(connection, out),
        }
    }

    #[inline]
    fn kind(&self) -> usize {
        match self {
            WorkTraffic::Requests(traffic) => traffic.kind(),
            WorkTraffic::Commands(traffic) => traffic.kind(),
        }
    }

    fn kinds(&self) -> Vec<Kind> {
        self.inner().kinds()
    }

    #[inline]
    fn replies_before(&self) -> u8 {
        match self {
            WorkTraffic::Requests(_) => 0,
            WorkTraffic::Commands(traffic) => traffic.replies_before(),
        }
    }

    #[inline]
    fn takes(&mut self, connection: usize) -> bool {
        match self {
            WorkTraffic::Requests(_) => true,
            WorkTraffic::Commands(traffic) => traffic.takes(connection),
        }
    }

    fn head_parser(&self) -> HeadParser {
        self.inner().head_parser()
    }

    fn reads_answers(&self) -> bool {
        self.inner().reads_answers()
    }

    fn response(&mut self, connection: usize, response: &Response<'_>) {
        match self {
            WorkTraffic::Requests(traffic) => traffic.response(connection, response),
            WorkTraffic::Commands(traffic) => traffic.response(connection, response),
        }
    }

    fn lost(&mut self, connection: usize, unanswered: usize) {
        match self {
            WorkTraffic::Requests(traffic) => traffic.lost(connection, unanswered),
            WorkTraffic::Commands(traffic) => traffic.lost(connection, unanswered),
        }
    }
}
