//! Placeholder of the load room.
