//! Limits of the file, with the source of each. The crates that use a config check these against their own
//! limits.

/// The longest config file, in bytes; far above any handwritten file.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;

/// The most header fields that `[server.limits]` may permit: what the HTTP parser has room for.
pub const FIELDS_MAX: u64 = 128;

/// The longest method of a request, in bytes: a head has room for it and the target.
pub const METHOD_BYTES_MAX: usize = 64;

/// The largest body that a cache stores, in bytes.
pub const KEPT_BODY_BYTES_MAX: u64 = 8 << 20;

/// The most requests of a rate: at this number a second, a request takes one nanosecond of the period.
pub(crate) const RATE_COUNT_MAX: u64 = 1_000_000_000;
