//! forebay-bench.
fn main() {}
