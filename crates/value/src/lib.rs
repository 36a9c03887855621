//! Placeholder of the value room.
