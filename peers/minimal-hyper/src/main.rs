//! forebay-peer-hyper.
fn main() {}
