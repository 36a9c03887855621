//! Names for places in a log: where (`Position`), which log (`LogId`), and which of its openings (`Opening`).

use std::fmt;

/// A byte offset in the log since its beginning: group headers and padding count, segment headers
/// do not. Only ever grows; never used twice within one log id, except for what a crash cut off
/// before it was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub u64);

impl Position {
    /// Past everything: what an answer that waits for nothing waits for.
    pub const MAX: Position = Position(u64::MAX);
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Which log: drawn at random when the folder is created, so that positions of another folder are
/// never taken for this one's.
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
    /// Where the log ended: what lies before was written by earlier openings.
    pub end: Position,
}
