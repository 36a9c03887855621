//! Load for Redis servers and clusters: SET and GET over random keys, RESP2 or 3.
//!
//! What it is: another [`Traffic`](crate::Traffic) for the same workers, with a reader of replies in the place of the reader of heads.
//! Replies count as statuses, so that every report and threshold works: 200 a value or OK, 404 nothing under that key, 301 MOVED, 302 ASK,
//! 500 any other error.
//!
//! What it promises: SET and GET come in exactly the ratio asked for, values have exactly the size. In a cluster each connection belongs
//! to one master and carries only keys of its slots; a MOVED reply moves the slot.

mod cluster;
mod commands;
mod reply;

pub use cluster::Node;
pub(crate) use cluster::nodes;
pub use commands::{Commands, RedisTraffic};
