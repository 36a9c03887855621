//! Tests against real servers, Redis and Valkey, in every topology: what is sent, what is known of requests
//! after faults, what is refused.

mod cluster;
mod faults;
mod invalidations;
mod refused;
mod sentinel;
mod single;
mod support;
