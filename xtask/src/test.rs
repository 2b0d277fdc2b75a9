//! Every test of the project in one go, and their sum.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

use crate::program::{self, Program};

/// Runs all tests, prints what they print, and ends with the line `N passed, N failed`.
///
/// A test program that does not compile, or that ends without a result, counts as one failure.
pub fn run(root: &Path) -> ExitCode {
    let mut sum = Sum::default();
    // Unit and integration tests; guests; replay of the corpora. Many of them wait for time to
    // pass or for a guest to boot, so that as many programs run at once as there are processors.
    match programs(root) {
        Some(programs) => sum.add(&run_all(programs)),
        None => sum.failed += 1,
    }
    step(root, &mut sum, &["test", "--workspace", "--doc"]);
    println!("{} passed, {} failed", sum.passed, sum.failed);
    if sum.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Builds the test programs; `None` when they do not compile, which has been said by then.
fn programs(root: &Path) -> Option<Vec<Program>> {
    let args = [
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ];
    println!("cargo {}", args.join(" "));
    let mut child = spawned(cargo().args(args).current_dir(root))?;
    let stdout = child
        .stdout
        .take()
        .expect("its standard output was asked for as a pipe");
    let messages = BufReader::new(stdout).lines().map_while(Result::ok);
    let programs = messages.filter_map(|line| Program::of(&line)).collect();
    child
        .wait()
        .is_ok_and(|status| status.success())
        .then_some(programs)
}

/// Runs the programs, as many at once as there are processors; prints each one's output whole.
fn run_all(mut programs: Vec<Program>) -> Sum {
    let count = programs.len();
    // Those that run the product take longest. The last of the list is taken first.
    programs.sort_by_key(Program::weight);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (left, sum) = (Mutex::new(programs), Mutex::new(Sum::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = lock(&left).pop();
                    let Some(program) = next else { return };
                    let result = program::run(&program);
                    let mut sum = lock(&sum);
                    sum.programs += 1;
                    println!(
                        "\n{} ({} of {count}, {} s)",
                        program.name(),
                        sum.programs,
                        result.took.as_secs()
                    );
                    let _ = std::io::stdout().write_all(&result.output);
                    let mut own = Sum::default();
                    for line in String::from_utf8_lossy(&result.output).lines() {
                        own.read(line);
                    }
                    if let Err(reason) = &result.ended {
                        println!("{}: {reason}", program.name());
                        own.failed = own.failed.max(1);
                    }
                    sum.add(&own);
                }
            });
        }
    });
    sum.into_inner().unwrap_or_default()
}

/// What a thread that panicked left locked is as good as before: it is only ever added to.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    programs: usize,
    passed: u64,
    failed: u64,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
    fn read(&mut self, line: &str) {
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

/// Cargo as a shell starts it: without what the Cargo that runs this program has added, for which
/// build scripts that read it would run again, and all that depends on them be compiled anew.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let is_of_package =
            |it: &str| it.starts_with("CARGO_PKG_") || it.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_of_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Starts a command with its standard output in a pipe; `None`, and said, when it cannot be.
fn spawned(command: &mut Command) -> Option<std::process::Child> {
    match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            println!("cargo cannot be run: {error}");
            None
        }
    }
}

/// Runs one command of Cargo's and adds the results that it prints.
fn step(root: &Path, sum: &mut Sum, args: &[&str]) {
    println!("\ncargo {}", args.join(" "));
    let mut command = cargo();
    command.args(args);
    let Some(mut child) = spawned(command.current_dir(root)) else {
        sum.failed += 1;
        return;
    };
    let failed_before = sum.failed;
    let stdout = child
        .stdout
        .take()
        .expect("its standard output was asked for as a pipe");
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        sum.read(&line);
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
            sum.read(line);
        }
        assert_eq!((sum.passed, sum.failed), (37, 2));
    }
}
