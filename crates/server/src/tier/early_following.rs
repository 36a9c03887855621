//! Following that begins before memory is loaded, so that no change is missed and loading knows which tables
//! need not be read.

use forebay_drain::Beginning;

/// How following begins, and the tables whose changes the database has reported since the checkpoint.
pub struct Begun {
    pub(super) beginning: Beginning,
    pub(super) goes_on: Vec<String>,
}

impl Begun {
    /// Whether all changes of a table since the checkpoint are reported.
    pub(super) fn goes_on(&self, table: &str) -> bool {
        self.goes_on.iter().any(|name| name == table)
    }
}
