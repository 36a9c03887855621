//! Following that begins before memory is loaded, so that no change is missed and loading knows which tables
//! need not be read.

use forebay_drain::FollowStart;

/// How following begins, and the tables whose changes the database has reported since the checkpoint.
pub struct EarlyFollowing {
    pub(super) start: FollowStart,
    pub(super) continued_tables: Vec<String>,
}

impl EarlyFollowing {
    /// Whether all changes of a table since the checkpoint are reported.
    pub(super) fn is_continuous(&self, table: &str) -> bool {
        self.continued_tables.iter().any(|name| name == table)
    }
}
