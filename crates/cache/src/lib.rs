//! The response cache: answers stored ready to send, in this process (*local*) and, optionally, on a
//! Redis or Valkey that several servers share (*shared*).
//!
//! # Modules, in the order in which a request uses them
//!
//! | module | knows |
//! |---|---|
//! | [`Cache`] | both levels: what is found, who fills, what is dropped |
//! | [`Rules`] | how long the answers of one endpoint live, and how consistent they are |
//! | `upstream` | whether an upstream's answer may be stored, and for how long, by its own header fields |
//! | [`PrivateAnswers`] | which keys had answers that are for one client only |
//! | `entry`, `fields` | one answer with its validator, its encodings and its lifetimes |
//! | [`Conditions`] | If-None-Match and Accept-Encoding of a request |
//! | `compress` | encoded bodies; an entry makes each at its first request for it |
//! | `tags` | generations: what was dropped since an entry's fill began |
//! | `flight` | single flight: one fill for all requests that wait for the same key |
//! | `level`, `format` | the shared level: entries and generations on Redis, the lease, the byte format |
//! | `invalidation_listener` | drops by other servers |
//!
//! # What must stay true
//!
//! - An entry is served only while none of its tags was dropped since *before* its fill began. A
//!   fill that read before a write is therefore never served after it, whenever the fill ends.
//! - One fill runs at a time for a key. It runs in a task of its own, so a client that disconnects
//!   does not cancel it. Errors are not stored.
//! - A hit is one look-up and one copy: no task, no allocation, no lock but that of the shard it is in.
//! - Entries in the process are bounded in bytes. A scan of keys that are requested once does not
//!   evict entries in use.
//! - When the shared level is unavailable, requests cost what they would cost without it.
//!
//! # What must not move in
//!
//! SQL, the config, routes; what a tag or a key means.

mod bound;
mod cache;
mod clock;
mod compress;
mod conditions;
mod entry;
mod error;
mod fields;
mod flight;
mod format;
mod invalidation_listener;
mod level;
pub mod limits;
mod private_answers;
mod rules;
mod stats;
mod tags;
mod upstream;

pub use cache::{Cache, Found, Options};
pub use clock::Clock;
pub use compress::{Undecoded, decode, encode};
pub use conditions::{Coding, Conditions};
pub use entry::{CacheEntry, Filled, Keep, etag};
pub use error::{Error, Kind};
pub use flight::Landed;
pub use format::fingerprint;
pub use level::SharedLevel;
pub use private_answers::PrivateAnswers;
pub use rules::{Consistency, Rules};
pub use stats::Counts;
pub use upstream::{Heed, Policy, Storable};
