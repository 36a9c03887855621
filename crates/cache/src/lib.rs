//! The response cache: answers kept ready to send, in this process (*burst*) and, where there is
//! one, on a Redis or Valkey that several servers share.
//!
//! # What lives here, in the order in which a request meets it
//!
//! | module | knows |
//! |---|---|
//! | [`Cache`] | both levels: what is found, who fills, what is dropped |
//! | [`Rules`] | what one endpoint promises, and for how long |
//! | `upstream` | what an upstream server says of its answer: whether it may be kept, and for how long |
//! | [`Alone`] | which questions have answers for one client only |
//! | `entry`, `fields` | one answer with its validator, its forms and its times |
//! | [`Conditions`] | what a request says about the form of its answer |
//! | `compress` | encodings, made once for an entry, when first asked for |
//! | `tags` | generations: what was dropped since an entry's fill began |
//! | `flight` | one fill for everybody who waits for the same key |
//! | `level`, `format` | the shared level: entries and generations on Redis, the lease, what one looks like in bytes |
//! | `hear` | what other servers dropped |
//!
//! # What must stay true
//!
//! - An entry is shown only while nothing that it carries a tag of was dropped since *before* its
//!   fill began. So a fill that read before a write is never shown after it, whenever it ends.
//! - One fill at a time for a key; it runs in a task of its own, so that nobody who leaves takes it
//!   along. Errors are not kept.
//! - A hit is one look-up and one copy: no task, no allocation, no lock but that of the shard it is in.
//! - What is kept in the process is bounded in bytes; a scan of keys that are asked for once does
//!   not push out what is in use.
//! - The shared level being away costs what it saved, and nothing else.
//!
//! # What must not move in
//!
//! SQL, the config, routes; what a tag or a key means.

mod alone;
mod cache;
mod clock;
mod compress;
mod conditions;
mod entry;
mod error;
mod fields;
mod flight;
mod format;
mod hear;
mod level;
pub mod limits;
mod rules;
mod stats;
mod tags;
mod upstream;

pub use alone::Alone;
pub use cache::{Cache, Found, Options};
pub use clock::Clock;
pub use compress::encode;
pub use conditions::{Coding, Conditions};
pub use entry::{Entry, Filled, Keep, etag};
pub use error::{Error, Kind};
pub use flight::Landed;
pub use format::fingerprint;
pub use level::Shared;
pub use rules::{Promise, Rules};
pub use stats::Counts;
pub use upstream::{Heed, Kept, Policy};
