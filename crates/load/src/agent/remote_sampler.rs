//! Samples of the machine of an agent that runs beside a server of any kind.

use super::control::{login, lost};
use super::frame::{receive, send};
use super::message::{FromAgent, ToAgent};
use crate::limits::FRAME_BYTES_MAX;
use crate::report::{Error, Kind};
use forebay_host::Sample;
use std::fmt;
use std::io;
use std::net::TcpStream;

/// Requests samples from one agent; connects again when the connection was lost.
pub(crate) struct RemoteSampler {
    place: String,
    token: String,
    stream: Option<TcpStream>,
}

/// Omits the token, so that no log shows it.
impl fmt::Debug for RemoteSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteSampler({})", self.place)
    }
}

impl RemoteSampler {
    /// Connects at the first request.
    pub fn new(place: &str, token: &str) -> RemoteSampler {
        RemoteSampler { place: place.to_owned(), token: token.to_owned(), stream: None }
    }

    /// The machine, and the process that the agent watches, now.
    pub fn sample(&mut self) -> Result<Sample, Error> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => login(&self.place, &self.token, None)?,
        };
        let said = send(&mut stream, &ToAgent::Sample).and_then(|()| receive(&mut stream, FRAME_BYTES_MAX));
        match said.map_err(|error| lost(&self.place, error))? {
            FromAgent::Sampled { sample } => {
                self.stream = Some(stream);
                Ok(*sample)
            }
            FromAgent::Failed { why } => {
                Err(Error::new(Kind::Unreachable, format!("agent {}: {why}", self.place)))
            }
            _ => {
                let strange = io::Error::new(io::ErrorKind::InvalidData, "it answered another request");
                Err(lost(&self.place, strange))
            }
        }
    }
}
