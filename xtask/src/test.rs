//! Every test of the project in one go, and their sum.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Runs all tests, prints what they print, and ends with the line `N passed, N failed`.
///
/// A test program that does not compile, or that dies without a result, counts as one failure.
pub fn run(root: &Path) -> ExitCode {
    let mut sum = Sum::default();
    // Unit, integration and documentation tests; guests; replay of the corpora.
    step(
        root,
        &mut sum,
        &["test", "--workspace", "--no-fail-fast"],
        &[],
    );
    // The models want another cfg, hence a build of their own, and are far too slow unoptimised.
    let loom = [
        "test",
        "--package",
        "carina-ring",
        "--test",
        "loom",
        "--release",
    ];
    let environment = [
        ("RUSTFLAGS", "--cfg loom"),
        ("CARGO_TARGET_DIR", "target/loom"),
        // Optimised, but not as one unit: that takes longer than it saves.
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
        ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ];
    step(root, &mut sum, &loom, &environment);
    println!("{} passed, {} failed", sum.passed, sum.failed);
    if sum.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    passed: u64,
    failed: u64,
}

impl Sum {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let count = |what: &str| {
            let before = result
                .split(what)
                .next()
                .filter(|before| before.len() < result.len())?;
            before
                .rsplit([' ', '.'])
                .find(|word| !word.is_empty())?
                .parse::<u64>()
                .ok()
        };
        self.passed += count(" passed;").unwrap_or(0);
        self.failed += count(" failed;").unwrap_or(0);
    }
}

fn step(root: &Path, sum: &mut Sum, args: &[&str], environment: &[(&str, &str)]) {
    println!("cargo {}", args.join(" "));
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let spawned = Command::new(cargo)
        .args(args)
        .envs(environment.iter().copied())
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            println!("cargo cannot be run: {error}");
            sum.failed += 1;
            return;
        }
    };
    let failed_before = sum.failed;
    let stdout = child
        .stdout
        .take()
        .expect("its standard output was asked for as a pipe");
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        sum.add(&line);
    }
    let success = child.wait().is_ok_and(|status| status.success());
    if !success && sum.failed == failed_before {
        sum.failed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_programs_are_summed() {
        let mut sum = Sum::default();
        for line in [
            "running 5 tests",
            "test result: ok. 34 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured",
            "test result: unheard of",
        ] {
            sum.add(line);
        }
        assert_eq!(
            sum,
            Sum {
                passed: 37,
                failed: 2
            }
        );
    }
}
