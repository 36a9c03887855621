//! A place in a log (`Position`), the id of a log (`LogId`), and one opening of a log (`Opening`).

use std::fmt;

/// A byte offset in the log since its beginning: group headers and padding count, segment headers do not.
/// Only ever grows; never used twice within one log id, except for records that a crash cut off before they
/// were acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub u64);

impl Position {
    /// Past every record. As the promised position ([`crate::Log::promised`]) it means that answers wait for
    /// nothing.
    pub const MAX: Position = Position(u64::MAX);
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The id of a log, drawn at random when the folder is created, so that positions of another log are never
/// mistaken for this one's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogId(pub u128);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One opening of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Drawn at random.
    pub nonce: u128,
    /// The end of the log at that moment: records before it were written by earlier openings.
    pub end: Position,
}
