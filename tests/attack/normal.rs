//! A normal client: one connection that is kept, and one that is new for each request.

use forebay_tests::Client;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The requests on one kind of connection.
#[derive(Clone, Copy, Default)]
pub struct Latency {
    pub p50: Duration,
    pub p99: Duration,
}

/// What a normal client sees.
#[derive(Default)]
pub struct Seen {
    pub kept: Latency,
    pub new: Latency,
    /// Requests without their right answer.
    pub wrong: Vec<String>,
}

fn latency(mut times: Vec<Duration>) -> Latency {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    let at = |part| at(part).copied().unwrap_or_default();
    Latency { p50: at(50), p99: at(99) }
}

/// Asks, and says what is wrong with the answer.
fn ask(client: &mut Client) -> Result<(), String> {
    match client.call("GET", "/hot", &[], None) {
        Ok(answer) if answer.status == 200 => Ok(()),
        Ok(answer) => Err(format!("status {}", answer.status)),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends many requests at once, so that the server has touched what a busy server touches.
#[track_caller]
pub fn warm_up(address: SocketAddr, requests: usize) {
    const AT_ONCE: usize = 16;
    let mut client = Client::connect(address).expect("the server listens");
    let request = forebay_tests::request_bytes("GET", "/hot", &[], None).repeat(AT_ONCE);
    for _ in 0..requests / AT_ONCE {
        client.send(&request).expect("a live socket");
        for _ in 0..AT_ONCE {
            assert_eq!(client.receive(false).expect("an answer").status, 200);
        }
    }
}

/// Sends that many requests on each kind of connection, one after the other.
pub fn normal(address: SocketAddr, requests: usize) -> Seen {
    let (mut kept, mut new, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    let mut client = None;
    for _ in 0..requests {
        let began = Instant::now();
        let connected = match client.take() {
            Some(client) => Ok(client),
            None => Client::connect(address).map_err(|error| error.to_string()),
        };
        match connected.and_then(|mut client| ask(&mut client).map(|()| client)) {
            Ok(open) => client = Some(open),
            Err(error) => wrong.push(format!("kept connection: {error}")),
        }
        kept.push(began.elapsed());
        let began = Instant::now();
        let connected = Client::connect(address).map_err(|error| error.to_string());
        if let Err(error) = connected.and_then(|mut client| ask(&mut client)) {
            wrong.push(format!("new connection: {error}"));
        }
        new.push(began.elapsed());
    }
    Seen { kept: latency(kept), new: latency(new), wrong }
}
