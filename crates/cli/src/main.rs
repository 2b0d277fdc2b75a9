//! `carina`: the one binary.
fn main() {}
