//! A look at the machine of an agent, that runs beside a server of any make.

use super::control::{login, lost};
use super::frame::{receive, send};
use super::message::{FromAgent, ToAgent};
use crate::limits::FRAME_BYTES_MAX;
use crate::report::{Error, Kind};
use forebay_host::Sample;
use std::fmt;
use std::io;
use std::net::TcpStream;

/// Asks one agent, over a connection that is made anew when it was lost.
pub(crate) struct Look {
    place: String,
    token: String,
    stream: Option<TcpStream>,
}

/// The token stands in no log.
impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Look({})", self.place)
    }
}

impl Look {
    /// Connects at the first question.
    pub fn new(place: &str, token: &str) -> Look {
        Look { place: place.to_owned(), token: token.to_owned(), stream: None }
    }

    /// The machine, and the process that the agent was told to watch, now.
    pub fn sample(&mut self) -> Result<Sample, Error> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => login(&self.place, &self.token)?,
        };
        let said = send(&mut stream, &ToAgent::Look).and_then(|()| receive(&mut stream, FRAME_BYTES_MAX));
        match said.map_err(|error| lost(&self.place, error))? {
            FromAgent::Seen { sample } => {
                self.stream = Some(stream);
                Ok(*sample)
            }
            FromAgent::Failed { why } => {
                Err(Error::new(Kind::Unreachable, format!("agent {}: {why}", self.place)))
            }
            _ => {
                let strange = io::Error::new(io::ErrorKind::InvalidData, "it answers another question");
                Err(lost(&self.place, strange))
            }
        }
    }
}
