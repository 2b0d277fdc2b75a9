//! `carina`, what a user runs: all of it is in the library of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    carina_cli::carina()
}
