//! Placeholder of the http room.
