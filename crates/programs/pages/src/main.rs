//! `carina-pages DIRECTORY` writes the manual pages to `DIRECTORY/man1`, and completions to
//! `DIRECTORY/bash`, `zsh` and `fish`. `make install` and `make package` run it.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("carina-pages: no output directory is given; usage: \"carina-pages DIRECTORY\"");
        return ExitCode::from(2);
    };
    let directory = Path::new(&directory);
    match carina_pages::write(directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "carina-pages: writing pages to {}: {error}",
                directory.display()
            );
            ExitCode::FAILURE
        }
    }
}
