//! Following that has begun before memory is loaded: so that nothing is missed, and loading knows what it
//! need not read.

use forebay_drain::Beginning;

/// What following begins with, and which tables the database has been telling of since the checkpoint.
pub struct Begun {
    pub(super) beginning: Beginning,
    pub(super) goes_on: Vec<String>,
}

impl Begun {
    /// Whether what was changed since the checkpoint is told of a table.
    pub(super) fn goes_on(&self, table: &str) -> bool {
        self.goes_on.iter().any(|name| name == table)
    }
}
