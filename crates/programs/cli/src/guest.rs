//! The program `carina-guest`, installed as `/bin/carina` in guests: a node, and programs that use
//! its flows.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    carina_cli::guest()
}
