//! forebay.
fn main() {}
