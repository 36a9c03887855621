//! Placeholder of the drain room.
