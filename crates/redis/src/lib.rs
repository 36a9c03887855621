//! The one way to reach Redis, Valkey or Dragonfly: single, with replicas, behind Sentinel, or a Cluster.
//!
//! A [`Client`] knows where everything is and follows failovers and resharding; a [`Link`] is what
//! one worker thread sends with. A link has one connection for each node and direction. Everything
//! that arrives while a batch is on its way is the next batch, so that concurrent callers share
//! system calls, packets and, for writes, one WAIT or WAITAOF.
//!
//! What must stay true here: an error says exactly what is known of the request. [`Kind::NotSent`]
//! means that nothing happened, [`Kind::UnknownOutcome`] that it may have; a write is never sent
//! again after it may have been executed.
//!
//! The crate `redis` gives the codec (commands to bytes, bytes to [`Value`]); sockets, topology,
//! routing, batching and the meaning of a failure are ours. What a key or a script means is left to
//! the callers.

mod client;
mod connection;
mod discover;
mod error;
mod facts;
mod invalidations;
mod job;
mod lane;
pub mod limits;
mod link;
mod map;
mod nodes;
mod options;
mod script;
mod slot;
mod tls;
mod url;
mod wire;

pub use client::{Client, Node, Scan, Session};
pub use error::{Error, Kind};
pub use facts::{Facts, Need, ReplicaFacts, Role, Server, Version, require};
pub use invalidations::{Invalidation, Invalidations};
pub use link::Link;
pub use nodes::Address;
pub use options::{Durability, Options, ReadFrom, Replicas, Topology};
pub use redis::{Cmd as Command, Value};
pub use script::Script;
pub use slot::{SLOTS, Slot, slot_of, tag_for_slot};
