//! Placeholder of the log room.
