//! Placeholder of the server room.
