//! The fixed limits of this crate, with the reason for each.

use std::time::Duration;

/// The callers of an endpoint's rate in one set: two cache lines of 16-byte entries, searched linearly.
pub(crate) const RATE_WAYS: usize = 8;
/// The sets of an endpoint's rate: 65,536 callers in a little over 1 MiB. A server with more callers than
/// that within one period evicts those that were furthest from their limit.
pub(crate) const RATE_SETS: usize = 8_192;

/// The wrong credentials that a client may send in a minute: a person who mistypes a password sends a
/// few, a program that guesses sends thousands.
pub(crate) const WRONG_A_MINUTE: u64 = 20;
/// The sets of clients whose wrong credentials are counted: 8,192 clients in 128 KiB.
pub(crate) const WRONG_SETS: usize = 1_024;

/// The longest that a request waits for a shared rate decision. A round trip within a data centre takes less
/// than 1 ms; one to Redis on a busy machine, some hundred. Only requests that arrive before the first
/// timeout wait that long.
pub(crate) const RATE_DECISION_MS: u64 = 500;
/// How often the server checks whether Redis responds again.
pub(crate) const RATE_PROBE_MS: u64 = 250;

/// How long a hot write waits for the database to say in which form it stores a text. Then it is written as
/// it was sent, and the database judges it when it is drained.
pub(crate) const FORM_WAIT: Duration = Duration::from_secs(1);

/// The threads that read files, compare passwords and fetch keys: more would wait for the same disk and
/// cores.
pub(crate) const BLOCKING_THREADS_MAX: usize = 16;

/// The longest text of a client in a span, in bytes: as many spans wait as [`crate::spans`] says.
pub(crate) const SPAN_TEXT_BYTES_MAX: usize = 1_024;

const _: () = assert!(RATE_SETS.is_power_of_two(), "a set is chosen by masking");
