//! Project chores: `cargo xtask CHORE`.
//!
//! Each chore prints every breach that it finds, with its place and what would be right, and ends
//! with a non-zero status if there was one.

#![forbid(unsafe_code)]

mod bindings;
mod dependencies_page;
mod deps;
mod leftovers;
mod licence;
mod loc;
mod low_levels;
mod modules;
mod processes;
mod program;
mod prose;
mod report;
mod rust;
mod shown_files;
mod source;
mod supervise;
mod test;
mod tidy;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let chore = std::env::args().nth(1).unwrap_or_default();
    let root = root();
    let breaches = match chore.as_str() {
        "tidy" => tidy::check(&root),
        "deps" => deps::check(&root),
        "loc" => {
            // A reader that has seen enough, such as `head`, is no failure.
            let _ = std::io::stdout().write_all(loc::report(&root).as_bytes());
            return ExitCode::SUCCESS;
        }
        "cycles" => {
            for cycle in modules::cycles(&source::all(&root)) {
                println!("{}: {}", cycle.parent, cycle.modules.join(", "));
                for reason in cycle.because {
                    println!("    {reason}");
                }
            }
            return ExitCode::SUCCESS;
        }
        "test" => return test::run(&root),
        "supervise" => {
            let Some(executable) = std::env::args_os().nth(2) else {
                eprintln!("supervise: the path of a test program is missing");
                return ExitCode::from(2);
            };
            let tests: BTreeSet<String> = std::env::args().skip(3).collect();
            let only = Some(tests).filter(|tests| !tests.is_empty());
            return supervise::run(Path::new(&executable), only);
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    for breach in &breaches {
        eprintln!("{breach}");
    }
    match breaches.len() {
        0 => ExitCode::SUCCESS,
        count => {
            eprintln!("{chore}: {count} to put right");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent()
        .expect("xtask lies in the workspace's root")
        .to_owned()
}

const USAGE: &str = "cargo xtask CHORE, where CHORE is one of
  tidy    file length, names, prose, columns, links and sections, unsafe, cycles between modules
  deps    allowed dependencies, licences, duplicate versions, the page of dependencies
  loc     lines of code of each side of VMPI-LL
  cycles  modules that depend on one another in a cycle, at every level
  test    every test, and `N passed, N failed, N skipped`
  supervise PROGRAM [TEST ...]
          one test program, or some of its tests: names and ends tests that hang and processes left behind";
