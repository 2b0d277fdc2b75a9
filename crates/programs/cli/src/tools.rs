//! The program `carina-tools`: has all commands of `carina`, and runs those that measure, simulate
//! and convert in its own process.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    carina_cli::tools()
}
