//! The program `carina`, for users. All its code is in the library of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    carina_cli::carina()
}
