//! Every test of the project in one go, and their sum.
//!
//! A test that fails runs a second time when all others have ended, alone. When it passes then, it
//! depends on what else the machine does: it counts as passed, and the end of the report names it
//! with what it printed when it failed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

use crate::bindings;
use crate::leftovers::{Inventory, KeptData};
use crate::program::{self, Program};
use crate::report::{Counts, Sum};

/// Runs all tests, prints what they print, and ends with a list of the tests that failed or were
/// skipped and the line `N passed, N failed, N skipped`.
///
/// A test program that does not compile or that ends without a result counts as one failure, and so
/// does each process, namespace, interface, mount or file that the tests leave behind.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut sum = Counts::default();
    let mut report = String::new();
    let kept = KeptData::before_tests();
    // Unit and integration tests; guests; replay of the corpora. Many of them wait for time to
    // pass or for a guest to boot, so that as many programs run at once as there are processors.
    let mut all = Vec::new();
    let bindings = bindings::RUST.map(|path| root.join(path));
    let directories = || {
        [root]
            .into_iter()
            .chain(bindings.iter().map(PathBuf::as_path))
    };
    for directory in directories() {
        match programs(directory) {
            Some(programs) => all.extend(programs),
            None => sum.failed += 1,
        }
    }
    sum.add(run_all(all, &kept, &mut report));
    for (name, of_binding) in [
        (bindings::GO, bindings::go(root)),
        (bindings::PYTHON, bindings::python(root)),
    ] {
        listed(name, &of_binding, &mut report);
        sum.add(of_binding.counts);
    }
    for directory in directories() {
        step(directory, &mut sum, &["test", "--workspace", "--doc"]);
    }
    if let Err(error) = kept.remove() {
        listed_line(&mut report, &format!("FAILED: {error}"));
        sum.failed += 1;
    }
    println!("\n{report}{sum}");
    if sum.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Builds the test programs of the workspace in `directory`; `None` when they do not compile, which
/// Cargo has printed by then.
fn programs(directory: &Path) -> Option<Vec<Program>> {
    let args = [
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ];
    println!("{}: cargo {}", directory.display(), args.join(" "));
    let mut child = spawned(cargo().args(args).current_dir(directory))?;
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

/// Runs the programs and adds to the report what failed, what passed only alone, what was skipped.
fn run_all(programs: Vec<Program>, kept: &KeptData, report: &mut String) -> Counts {
    let files = match temporary_directory() {
        Ok(files) => files,
        Err(error) => {
            println!("no directory for files of the tests: {error}");
            return one_failure();
        }
    };
    let before = Inventory::take(&files);
    let mut sum = Counts::default();
    for (program, mut of_program) in run_at_once(programs, &files) {
        if !of_program.failed.is_empty() {
            run_alone(&program, &files, &mut of_program, report);
        }
        listed(&program.name(), &of_program, report);
        sum.add(of_program.counts);
    }
    let after = Inventory::take(&files);
    for thing in after.added_since(&before, kept) {
        listed_line(report, &format!("FAILED: the tests left behind: {thing}"));
        sum.failed += 1;
    }
    if let Err(error) = std::fs::remove_dir_all(&files) {
        let line = format!("FAILED: {} cannot be removed: {error}", files.display());
        listed_line(report, &line);
        sum.failed += 1;
    }
    sum
}

/// Runs the programs, as many at once as there are processors; prints each one's output whole.
fn run_at_once(mut programs: Vec<Program>, files: &Path) -> Vec<(Program, Sum)> {
    let count = programs.len();
    // Those that run the product take longest. The last of the list is taken first.
    programs.sort_by_key(Program::weight);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (left, done) = (Mutex::new(programs), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = lock(&left).pop();
                    let Some(program) = next else { return };
                    let ran = program::run(&program, files, &[]);
                    let mut done = lock(&done);
                    println!(
                        "\n{} ({} of {count}, {} s)",
                        program.name(),
                        done.len() + 1,
                        ran.duration.as_secs()
                    );
                    let _ = std::io::stdout().write_all(&ran.output);
                    done.push((program, sum_of(ran.sum)));
                }
            });
        }
    });
    done.into_inner().unwrap_or_default()
}

/// Runs the failed tests of a program once more. Those that pass now count as passed.
fn run_alone(program: &Program, files: &Path, first: &mut Sum, report: &mut String) {
    let names: Vec<&str> = first.failed.keys().map(String::as_str).collect();
    println!(
        "\n{}: failed tests run alone: {}",
        program.name(),
        names.join(", ")
    );
    let ran = program::run(program, files, &names);
    let _ = std::io::stdout().write_all(&ran.output);
    let second = sum_of(ran.sum);
    let passed_alone: Vec<String> = first
        .failed
        .keys()
        .filter(|test| second.causes.is_empty() && !second.failed.contains_key(*test))
        .cloned()
        .collect();
    for test in passed_alone {
        let text = first.failed.remove(&test).unwrap_or_default();
        let program = program.name();
        listed_line(report, &format!("PASSED ONLY ALONE: {program}: {test}"));
        listed_text(report, &text);
        first.counts.failed -= 1;
        match second.skipped.get(&test) {
            Some(reason) => {
                first.counts.skipped += 1;
                first.skipped.insert(test, reason.clone());
            }
            None => first.counts.passed += 1,
        }
    }
}

/// Adds what a program's tests came to, but for those that passed.
fn listed(program: &str, sum: &Sum, report: &mut String) {
    for cause in &sum.causes {
        listed_line(report, &format!("FAILED: {program}: {cause}"));
    }
    for (test, text) in &sum.failed {
        listed_line(report, &format!("FAILED: {program}: {test}"));
        listed_text(report, text);
    }
    for (test, reason) in &sum.skipped {
        listed_line(report, &format!("{program}: {test}: {reason}"));
    }
}

fn listed_line(report: &mut String, line: &str) {
    report.push_str(line);
    report.push('\n');
}

/// Adds the first lines of what a test printed.
fn listed_text(report: &mut String, text: &str) {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    for line in lines.take(LINES_OF_A_FAILURE) {
        listed_line(report, &format!("    {line}"));
    }
}

/// A program without results counts as one failure.
fn sum_of(sum: Result<Sum, String>) -> Sum {
    sum.unwrap_or_else(|reason| Sum {
        counts: one_failure(),
        causes: vec![reason],
        ..Sum::default()
    })
}

/// How many lines of a failed test's output stand at the end of the report.
const LINES_OF_A_FAILURE: usize = 12;

/// An empty directory for temporary files of the tests. Its path is short, since paths of sockets
/// have at most 107 bytes (`unix(7)`).
fn temporary_directory() -> std::io::Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("ct{}", std::process::id()));
    std::fs::create_dir(&path)?;
    Ok(path)
}

fn one_failure() -> Counts {
    Counts {
        failed: 1,
        ..Counts::default()
    }
}

/// What a thread that panicked left locked is as good as before: it is only ever added to.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Cargo as a shell starts it: without what the Cargo that runs this program has added, for which
/// build scripts that read it would run again, and all that depends on them be compiled anew.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let is_of_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
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

/// Runs one command of Cargo's in `directory` and adds the results that it prints.
fn step(directory: &Path, sum: &mut Counts, args: &[&str]) {
    println!("\n{}: cargo {}", directory.display(), args.join(" "));
    let mut command = cargo();
    command.args(args);
    let Some(mut child) = spawned(command.current_dir(directory)) else {
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
        sum.add(Counts::of_summary(&line).unwrap_or_default());
    }
    let success = child.wait().is_ok_and(|status| status.success());
    if !success && sum.failed == failed_before {
        sum.failed += 1;
    }
}
