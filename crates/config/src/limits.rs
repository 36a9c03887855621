//! Limits of the file, with where each comes from. The users of a config hold those of other
//! crates against theirs.

/// The longest config file, in bytes; far above any that was written by hand.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;

/// The most header fields that `[server.limits]` may permit: what the HTTP parser has room for.
pub const FIELDS_MAX: u64 = 128;

/// The longest method of a request, in bytes: a head has room for it and its target.
pub const METHOD_BYTES_MAX: usize = 64;

/// The largest body that a cache keeps, in bytes.
pub const KEPT_BODY_BYTES_MAX: u64 = 8 << 20;

/// The most requests of a rate: then a request costs one nanosecond of a period of one second.
pub(crate) const RATE_COUNT_MAX: u64 = 1_000_000_000;
