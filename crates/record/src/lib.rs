//! Placeholder of the record room.
