//! Helpers of the end-to-end tests: a real server in its own folder, real sockets, and access to the
//! database.
//!
//! - [`Start`] and [`Server`]: the binary, started, killed, stopped, restarted on the same folder
//! - [`Client`] and [`Answer`]: HTTP over a raw socket, answers parsed as strictly as by the load tester
//! - [`Stores`] and [`Archive`]: the pair of stores that the environment names, and access to its
//!   database
//! - [`Postgres`], [`Bouncer`], [`Cable`], [`Relay`], [`fn@clock`], [`JumpingClock`], [`Certificates`]: a
//!   PostgreSQL that tests may kill, a pooler in front of it, a network that can be cut, a relay that
//!   injects a fault at a chosen message, a wrong clock, a clock that jumps, TLS
//! - [`SlowDisk`]: a disk whose syncs are held, or fail
//! - [`Database`]: the SQLite file as another process sees it
//! - [`fn@binary`]: the server, built once in the profile of the tests
//! - [`Freshness`]: how long others' commits take until they are served
//! - [`number`]: the size of a long test, from the environment
//!
//! Nothing here uses a crate of the server: tests check what it sends over the wire, what it prints and
//! what it leaves on disk. Helpers panic with all details, because only tests and benches use them.

mod archive;
mod binary;
mod bouncer;
mod cable;
mod certificates;
mod client;
mod clock;
mod database;
mod environment;
mod folder;
mod freshness;
mod log_file;
mod mounts;
mod port;
mod postmaster;
mod relay;
mod server;
mod slow_disk;
mod start;
mod stores;

pub use archive::Archive;
pub use binary::{binary, example, root};
pub use bouncer::Bouncer;
pub use cable::Cable;
pub use certificates::Certificates;
pub use client::{Answer, Client, request_bytes};
pub use clock::{JumpingClock, clock};
pub use database::Database;
pub use environment::number;
pub use folder::Folder;
pub use freshness::Freshness;
pub use log_file::{Group, Segment, last_segment, segments};
pub use mounts::{Mount, am_root};
pub use port::{Port, free_port};
pub use postmaster::Postgres;
pub use relay::{At, Fault, Harm, Relay};
pub use server::{Ended, PATIENCE, Server, wait_for};
pub use slow_disk::SlowDisk;
pub use start::Start;
pub use stores::Stores;
