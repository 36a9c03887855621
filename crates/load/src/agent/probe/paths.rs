//! All paths of a run: from each tester to each agent beside a server.

use super::measure;
use crate::agent::Controller;
use crate::agent::control::{login, lost, strange};
use crate::agent::frame::{receive, send};
use crate::agent::message::{FromAgent, ToAgent};
use crate::limits::{FRAME_BYTES_STRANGER_MAX, PROBE_ANSWER_MS, PROBE_STREAMS, PROBE_STREAMS_IN_ALL};
use crate::report::{Error, Kind};
use crate::results::Path;
use std::net::TcpStream;
use std::time::Duration;

/// Measures the paths to those servers of `--monitor` that have an agent, one server after the other, all
/// testers at the same time. Returns what could be measured, and a sentence on each path that could not.
pub fn paths(controller: Option<&Controller>, servers: &[String], token: &str) -> (Vec<Path>, Vec<String>) {
    let (mut measured, mut notes) = (Vec::new(), Vec::new());
    for server in servers.iter().filter_map(|url| url.strip_prefix("agent://")) {
        let server = server.trim_end_matches('/');
        let all = match controller {
            None => vec![("this machine".to_owned(), measure(server, token, PROBE_STREAMS))],
            Some(controller) => by_agents(controller, server),
        };
        for (tester, path) in all {
            match path {
                Ok(path) => measured.push(Path { tester, ..path }),
                Err(why) => {
                    notes.push(format!("the network from {tester} to {server} was not measured: {why}"));
                }
            }
        }
    }
    (measured, notes)
}

fn by_agents(controller: &Controller, server: &str) -> Vec<(String, Result<Path, Error>)> {
    let streams = (PROBE_STREAMS_IN_ALL / controller.places().len()).clamp(1, PROBE_STREAMS);
    let ask = |place: &String| -> Result<TcpStream, Error> {
        let mut stream = login(place, controller.token(), None)?;
        let order = ToAgent::Probe { place: server.to_owned(), streams };
        let sent = stream.set_read_timeout(Some(Duration::from_millis(PROBE_ANSWER_MS)));
        sent.and_then(|()| send(&mut stream, &order)).map_err(|error| lost(place, error))?;
        Ok(stream)
    };
    // All agents are asked before the first answer is read, so that they measure at the same time.
    let asked: Vec<_> = controller.places().iter().map(|place| (place, ask(place))).collect();
    let answer = |place: &str, mut stream: TcpStream| {
        let failed = |error| lost(place, error);
        match receive(&mut stream, FRAME_BYTES_STRANGER_MAX).map_err(failed)? {
            FromAgent::Probed { path } => Ok(path),
            FromAgent::Failed { why } => Err(Error::new(Kind::Unreachable, why)),
            _ => Err(failed(strange())),
        }
    };
    let each = asked.into_iter();
    each.map(|(place, stream)| (place.clone(), stream.and_then(|stream| answer(place, stream)))).collect()
}
