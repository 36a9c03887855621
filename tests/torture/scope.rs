//! What the server is not held to today. Each of these goes with the change that makes it true; `FOREBAY_TORTURE_ALL=1` holds the server to all
//! of it.

fn is_asked_for() -> bool {
    std::env::var_os("FOREBAY_TORTURE_ALL").is_some()
}

/// Others write to the same rows by SQL: an update writes its own columns only.
pub fn others_write() -> bool {
    is_asked_for()
}

/// Triggers raise SQLSTATEs of their own.
pub fn own_sqlstates() -> bool {
    is_asked_for()
}
