//! Placeholder of the table room.
