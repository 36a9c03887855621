//! What the end-to-end tests share: a real server in a folder of its own, real sockets, and SQLite to look
//! into.
//!
//! - [`Start`] and [`Server`]: the binary, started, killed, stopped, restarted on the same folder
//! - [`Client`] and [`Answer`]: HTTP over a raw socket, answers parsed as strictly as the load driver does
//! - [`Stores`] and [`Archive`]: the pair of stores that the environment names, and the database of it to
//!   look into
//! - [`Postgres`], [`Bouncer`], [`Cable`], [`Relay`], [`clock`], [`JumpingClock`], [`Certificates`]: a
//!   PostgreSQL that may die, a pooler before it, a network that may be cut, one that does harm at a chosen
//!   message, a clock that is wrong, one that jumps, TLS
//! - [`SlowDisk`]: a disk whose syncs are held, or fail
//! - [`Database`]: the database as somebody with `sqlite3` sees it
//! - [`binary`]: the server, built once in the profile of the tests
//! - [`number`]: how long a proof is, from the environment
//!
//! Nothing here knows a crate of the server: it is held to what goes over the wire, what it prints and what
//! it leaves on disk. Helpers panic with everything they know, for they are used in tests and benches
//! alone.

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
pub use log_file::{Group, Segment, last_segment, segments};
pub use mounts::{Mount, am_root};
pub use port::{Port, free_port};
pub use postmaster::Postgres;
pub use relay::{At, Fault, Harm, Relay};
pub use server::{Ended, PATIENCE, Server, wait_for};
pub use slow_disk::SlowDisk;
pub use start::Start;
pub use stores::Stores;
