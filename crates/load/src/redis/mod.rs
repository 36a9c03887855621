//! Load for Redis servers and clusters: SET and GET over random keys, RESP2 or 3.
//!
//! What it is: another [`Traffic`](crate::Traffic) for the same workers, with a reply reader in
//! place of the head reader. Replies count as statuses, so that every report and threshold works:
//! 200 a value or OK, 404 no such key, 301 MOVED, 302 ASK, 500 any other error.
//!
//! What it promises: SET and GET come in exactly the ratio asked for, values have exactly the size.
//! In a cluster each connection belongs to one node and carries only keys of its slots; a MOVED
//! reply reassigns the slot, and a redirected command (MOVED, ASK) is sent again to the named node,
//! as a separate request. With reads from replicas, GETs go to replicas only.
//!
//! `discover` queries the nodes before the run, over a connection of `ask`; every connection begins
//! with the commands of `login`; `encode` writes commands, `reply` reads replies, `cluster` knows
//! which node has which slot.

mod ask;
mod cluster;
mod commands;
mod discover;
mod encode;
mod login;
mod reply;

pub use cluster::Node;
pub(crate) use commands::CommandFlags;
pub use commands::{Commands, RedisTraffic};
pub(crate) use discover::discover;
pub use login::{Hello, Login};
