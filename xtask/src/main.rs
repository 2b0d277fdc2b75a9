//! Project chores: tidy, dependency rules, lines of code.
fn main() {}
