//! `carina-guest`, what a guest has as `/bin/carina`: a node and what uses its flows.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    carina_cli::guest()
}
