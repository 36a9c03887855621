//! `forebay-topology`: local Redis and Valkey servers in every topology that Forebay supports: one instance,
//! a primary with replicas, the same watched by Sentinel, a cluster. The processes are real and use the
//! installed server.
//!
//! - [`Spec`]: the request; [`Topology`] its shape, [`Flavour`] the server software
//! - [`Local`]: the running topology: [`Local::up`], [`Local::url`], [`Local::kill`],
//!   [`Local::start`], [`Local::pause`], [`Local::resume_node`], [`Local::reshard`], [`Local::halt`],
//!   [`Local::resume`], [`Local::down`]; taken down when dropped, unless it is detached
//! - [`down`]: takes down what an earlier process left in a folder
//!
//! When `up` returns, every node serves, every replica is in step and all nodes agree. A cluster's nodes
//! know each other from the start, because their `nodes.conf` is written before they start: no handshakes,
//! no waiting for gossip.
//!
//! **The process table is the source of truth.** A node's processes are those whose command line is the
//! server and the node's config file. So no record is written that a crash could make wrong, and no other
//! process is ever signalled. This needs `/proc`: Linux.
//!
//! What must not move in: anything that a program needs to *use* Redis. That is `forebay-redis`.

mod config_file;
mod control;
mod error;
mod find;
mod halt;
mod limits;
mod local;
mod ports;
mod process;
mod ready;
mod reshard;
mod spec;
mod state;
mod status;

pub use error::{Error, Kind, Result};
pub use limits::NODES_MAX;
pub use local::{Local, down};
pub use reshard::Moved;
pub use spec::{Flavour, Persistence, Spec, Tls, Topology};
pub use state::{Node, NodeKind};
pub use status::{NodeStatus, Role, Running, Status};
