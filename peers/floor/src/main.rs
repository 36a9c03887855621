//! forebay-peer-floor.
fn main() {}
