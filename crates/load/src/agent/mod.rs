//! Load from several machines: an [`Agent`] on each of them, and one controller ([`drive`]) that
//! merges them into one run.
//!
//! # The protocol
//!
//! TCP; the controller connects. Both sides send frames: four bytes of length (big-endian), then
//! that many bytes of JSON: one message of `message`. A frame above 64 MiB (4 KiB before both
//! sides have shown that they know the token) ends the connection.
//!
//! ```text
//! agent       hello { format, nonce }                    a version, and 32 random bytes
//! controller  login { format, nonce, proof, probe }      32 bytes; HMAC-SHA256(token, "controller" nonces)
//! agent       welcome { proof }                          HMAC-SHA256(token, "agent" nonces)
//!             or refused { why }
//! controller  ping { }         agent  pong { unix_ns }   16 times: the clock offset
//! controller  job { … }                                  target, settings, this agent's part of the requests
//! agent       progress { live, seconds, hosts }          every 250 ms from here on; seconds as they end
//! agent       ready { }                                  names are looked up, connections made
//! controller  start { at_unix_ns }                       by the agent's clock: all begin at the same moment
//! controller  ping { }                                   every second: the controller is still there
//! controller  cancel { }                                 ends the run; its results follow as done
//! controller  sample { }       agent  sampled { sample } at any time: machine and process
//! controller  probe { place, streams }                   before a job: measure the network to another agent
//! agent       probed { path }                            or failed { why }
//! agent       done { results, started_unix_ns }          or failed { why }
//! ```
//!
//! A login with `probe` makes the connection one stream of a measurement (`probe`).
//!
//! The token never travels; a nonce is never used twice. What follows the login is neither
//! encrypted nor signed: run agents in a private network or behind a tunnel.
//!
//! # What it promises
//!
//! Histograms are merged exactly, bucket for bucket. An agent that is silent for five seconds, or whose
//! connection ends, is lost: the other agents continue, and the report says that it is partial and includes
//! the seconds that the lost agent delivered. An agent whose controller is gone stops sending and stores
//! what it measured: each run has two files in its folder, one written as the seconds pass.

mod agent_state;
mod clock;
mod control;
mod frame;
mod merge;
mod message;
mod probe;
mod proof;
mod remote_sampler;
mod run_files;
mod serve;
mod session;

pub use control::{Controller, drive};
pub use probe::paths;
pub(crate) use remote_sampler::RemoteSampler;
pub use serve::Agent;
