//! The one way to reach Redis, Valkey or Dragonfly: single, with replicas, behind Sentinel, or a Cluster.
//!
//! A [`Client`] stores the topology and follows failovers and resharding. A [`Link`] sends the requests of
//! one worker thread; it has one connection for each node and direction. Requests that arrive while a batch
//! is in flight form the next batch, so that concurrent callers share system calls, packets and, for writes,
//! one WAIT or WAITAOF.
//!
//! What must stay true here: an error says whether the request was executed. [`Kind::NotSent`] means
//! that it was not, [`Kind::UnknownOutcome`] that it may have been; a write that may have been
//! executed is never sent again.
//!
//! The crate `redis` provides the codec (commands to bytes, bytes to [`Value`]). Sockets, topology, routing,
//! batching and the meaning of a failure are implemented here. The callers define keys and scripts.

mod addresses;
mod capability;
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
mod options;
mod script;
mod slot;
mod tls;
mod topology_refresh;
mod url;
mod wire;

pub use addresses::Address;
pub use client::{Client, Node, Scan, Session};
pub use error::{Error, Kind};
pub use facts::{Facts, Need, ReplicaFacts, Role, Server, Version, require};
pub use invalidations::{Invalidation, Invalidations};
pub use link::Link;
pub use options::{Durability, Options, ReadFrom, Replicas, Topology};
pub use redis::{Cmd as Command, Value};
pub use script::Script;
pub use slot::{SLOTS, Slot, slot_of, tag_for_slot};
