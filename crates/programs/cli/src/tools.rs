//! `carina-tools`: what `carina` does, and what measures, simulates and converts besides.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    carina_cli::tools()
}
