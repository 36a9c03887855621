//! Where samples come from: this machine, `GET /host` of an admin listener, or an agent beside any
//! other server.

use super::thresholds::ANSWER_MS;
use crate::agent::RemoteSampler;
use crate::report::{Error, Kind};
use forebay_host::{Sample, Sampler};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A machine that gives samples.
#[derive(Debug)]
pub(super) enum SampleSource {
    Here(Sampler),
    Admin { url: String, agent: ureq::Agent },
    Agent { place: String, sampler: Mutex<RemoteSampler> },
}

impl SampleSource {
    pub(super) fn here() -> SampleSource {
        SampleSource::Here(Sampler::new())
    }

    /// `agent://host:port`, whose agent knows the token, or `http://host:port`, with or without the path.
    pub(super) fn of(url: &str, token: &str) -> Result<SampleSource, Error> {
        let Some(place) = url.strip_prefix("agent://") else { return SampleSource::admin(url) };
        let place = place.trim_end_matches('/').to_owned();
        let port = place.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let why = match port.map(|(_, port)| port.parse::<u16>()) {
            Some(Ok(1..)) if !token.is_empty() => {
                let sampler = Mutex::new(RemoteSampler::new(&place, token));
                return Ok(SampleSource::Agent { place, sampler });
            }
            Some(Ok(1..)) => "needs --token, the same that the agent was started with",
            _ => "is no place of an agent; write agent://HOST:PORT",
        };
        Err(Error::new(Kind::Argument, format!("--monitor {url:?} {why}")))
    }

    fn admin(url: &str) -> Result<SampleSource, Error> {
        let rest = url.strip_prefix("http://").filter(|rest| !rest.is_empty() && !rest.starts_with('/'));
        let Some(rest) = rest else {
            let message = format!(
                "--monitor {url:?} is no URL of an admin listener; write http://HOST:PORT as forebay serve prints it, or agent://HOST:PORT of a forebay agent"
            );
            return Err(Error::new(Kind::Argument, message));
        };
        let place = rest.trim_end_matches('/');
        let url =
            if place.contains('/') { format!("http://{place}") } else { format!("http://{place}/host") };
        let config =
            ureq::Agent::config_builder().timeout_global(Some(Duration::from_millis(ANSWER_MS))).build();
        Ok(SampleSource::Admin { url, agent: config.into() })
    }

    pub(super) fn sample(&self) -> Result<Sample, Error> {
        match self {
            SampleSource::Here(sampler) => sampler
                .sample()
                .map_err(|error| Error::new(Kind::File, "this machine cannot be watched").with_source(error)),
            SampleSource::Agent { sampler, .. } => {
                sampler.lock().unwrap_or_else(PoisonError::into_inner).sample()
            }
            SampleSource::Admin { url, agent } => {
                // The listener answers only to requests for a loopback name, so that no web page
                // can query it. This client is no web page, even when it connects through a tunnel
                // under another name.
                let answer = agent.get(url).header("Host", "localhost").call();
                let text = answer.and_then(|mut answer| answer.body_mut().read_to_string());
                let text = text.map_err(|error| {
                    let message = format!(
                        "no figures from {url}; is it the admin address that forebay serve printed at start?"
                    );
                    Error::new(Kind::Unreachable, message).with_source(error)
                })?;
                serde_json::from_str(&text).map_err(|error| {
                    Error::new(Kind::Format, format!("{url} does not answer with the figures of a host"))
                        .with_source(error)
                })
            }
        }
    }
}

impl fmt::Display for SampleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleSource::Here(_) => f.write_str("this machine"),
            SampleSource::Admin { url, .. } => f.write_str(url),
            SampleSource::Agent { place, .. } => write!(f, "agent {place}"),
        }
    }
}
