//! Runs one test program: `cargo xtask supervise PROGRAM [TEST ...]`, as `cargo xtask test` starts
//! it; with names of tests, those alone.
//!
//! A test that hangs is named and ended with every process that its program has started; the tests
//! that had no result yet run in a second attempt. A process that outlives its program is named,
//! ended and counted as a failure. For both, the supervisor is the child subreaper (`prctl(2)`) of
//! all that the program starts, so that a process whose parent has ended is still its descendant.
//!
//! ```text
//!            every test has a result, or the program ends
//! running ------------------------------------------------> ended
//!    |  a test runs for longer than HANGS_AFTER               ^
//!    +--------> its processes are killed -- no test is left --+
//!    ^                       |
//!    +-- tests are left -----+
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::processes;
use crate::report::Report;

/// libtest says that a test "has been running for over 60 seconds"; after this much more it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(9 * 60);

/// After this long an attempt is ended, whatever its tests say.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How often the tests that had no result when another one hung are run.
const ATTEMPTS: usize = 4;

/// How long processes may outlive their program: a machine notices the end of its starter, and an
/// agent ends a moment after its last network.
const GRACE: Duration = Duration::from_secs(15);

/// What is waited for, and for how long.
struct Limits {
    look_every: Duration,
    hangs_after: Duration,
    attempt: Duration,
    grace: Duration,
}

/// Runs the program, or some of its tests (`None`: all); prints its output, the causes of failures,
/// and the line of [`crate::report::Sum`].
pub(crate) fn run(executable: &Path, only: Option<BTreeSet<String>>) -> ExitCode {
    let limits = Limits {
        look_every: Duration::from_secs(1),
        hangs_after: HANGS_AFTER,
        attempt: ATTEMPT_LIMIT,
        grace: GRACE,
    };
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        println!("processes that outlive their parents are not found here: {error}");
    }
    let report = supervise(executable, only, &limits);
    print!("{}", report.shown());
    println!("{}", report.into_sum().line());
    ExitCode::SUCCESS
}

fn supervise(executable: &Path, only: Option<BTreeSet<String>>, limits: &Limits) -> Report {
    let mut report = Report::default();
    let mut left = only;
    for _ in 0..ATTEMPTS {
        let attempt = Attempt {
            executable,
            only: left.as_ref(),
            limits,
        };
        let hung = match attempt.run(&mut report) {
            Ok(hung) => hung,
            Err(error) => {
                report.fails(format!("{}: {error}", executable.display()));
                break;
            }
        };
        for process in processes::end_descendants(limits.grace, hung.is_some()) {
            report.fails(format!("a process was left running: {process}"));
        }
        let Some(hung) = hung else { break };
        for test in &hung {
            report.fails(format!("test {test} hung and was ended"));
        }
        let mut others = left.unwrap_or_else(|| tests(executable));
        others.retain(|test| !hung.contains(test) && !report.has_result(test));
        if others.is_empty() {
            break;
        }
        left = Some(others);
    }
    report
}

/// The names of all tests of a program that are not ignored.
fn tests(executable: &Path) -> BTreeSet<String> {
    let list = |ignored: &[&str]| {
        let mut command = Command::new(executable);
        command.args(["--list", "--format", "terse"]).args(ignored);
        let output = command.output().map(|output| output.stdout);
        let text = String::from_utf8_lossy(&output.unwrap_or_default()).into_owned();
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    &list(&[]) - &list(&["--ignored"])
}

/// One run of a program, over all of its tests or over `only` some.
struct Attempt<'a> {
    executable: &'a Path,
    only: Option<&'a BTreeSet<String>>,
    limits: &'a Limits,
}

impl Attempt<'_> {
    /// Runs to the end; the tests that hung, when the attempt was ended for them.
    fn run(&self, report: &mut Report) -> std::io::Result<Option<Vec<String>>> {
        // A file, since a process that a test has left behind would hold a pipe open.
        let path = self.output_file();
        let file = File::create(&path)?;
        let mut command = Command::new(self.executable);
        command.arg("--show-output");
        if let Some(only) = self.only {
            command.arg("--exact").args(only);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let ended = self.wait(&mut child, &path)?;
        report.read(&String::from_utf8_lossy(&std::fs::read(&path)?));
        match ended {
            Ended::Hung(tests) => Ok(Some(tests)),
            Ended::Itself(status) => {
                if !status.success() && !report.has_failures() {
                    report.fails(format!("the program failed: {status}"));
                }
                Ok(None)
            }
        }
    }

    fn wait(&self, child: &mut Child, output: &Path) -> std::io::Result<Ended> {
        let begun = Instant::now();
        let mut slow = SlowTests::default();
        let mut looked = begun;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ended::Itself(status));
            }
            std::thread::sleep(Duration::from_millis(20));
            let now = Instant::now();
            if now.duration_since(looked) < self.limits.look_every {
                continue;
            }
            looked = now;
            processes::take_ended_except(child.id());
            slow.look_at(&String::from_utf8_lossy(&std::fs::read(output)?), now);
            let mut hung = slow.running_for(self.limits.hangs_after, now);
            let is_over = now.duration_since(begun) > self.limits.attempt;
            if is_over && hung.is_empty() {
                hung = slow.running_for(Duration::ZERO, now);
            }
            if is_over || !hung.is_empty() {
                // By then its processes may have other parents, and be found all the same.
                processes::kill_descendants();
                child.wait()?;
                return Ok(Ended::Hung(hung));
            }
        }
    }

    fn output_file(&self) -> PathBuf {
        self.executable.with_extension("output")
    }
}

/// How an attempt came to its end.
enum Ended {
    Itself(ExitStatus),
    /// The tests that ran for too long.
    Hung(Vec<String>),
}

/// The tests that libtest has called slow and that have no result yet.
#[derive(Default)]
struct SlowTests {
    since: Vec<(String, Instant)>,
}

impl SlowTests {
    fn look_at(&mut self, output: &str, now: Instant) {
        for line in output.lines() {
            let slow = line.strip_prefix("test ").and_then(|line| {
                let (name, rest) = line.split_once(" has been running for over ")?;
                rest.ends_with("seconds").then_some(name)
            });
            if let Some(name) = slow
                && !self.since.iter().any(|(known, _)| known == name)
            {
                self.since.push((name.to_owned(), now));
            }
        }
        let with_result = crate::report::results(output);
        self.since
            .retain(|(name, _)| !with_result.iter().any(|(known, _)| known == name));
    }

    fn running_for(&self, limit: Duration, now: Instant) -> Vec<String> {
        let is_over = |since: &Instant| now.duration_since(*since) >= limit;
        let over = self.since.iter().filter(|(_, since)| is_over(since));
        over.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that speaks as libtest does; `$1` may be `--list`.
    fn program(name: &str, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        std::fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn supervised(name: &str, script: &str) -> Report {
        let _alone = processes::ONE_AT_A_TIME.lock();
        let path = program(name, script);
        let limits = Limits {
            look_every: Duration::from_millis(1),
            hangs_after: Duration::ZERO,
            attempt: Duration::from_secs(60),
            grace: Duration::from_secs(60),
        };
        let report = supervise(&path, None, &limits);
        for file in [path.with_extension("output"), path] {
            std::fs::remove_file(file).unwrap();
        }
        report
    }

    #[test]
    fn hung_test_is_named_and_the_others_run() {
        let report = supervised(
            "hung",
            "case \"$*\" in
             *--ignored*) ;;
             *--list*) echo 'a: test'; echo 'b: test'; echo 'c: test' ;;
             '--show-output --exact c') echo 'test c ... ok'
                 echo 'test result: ok. 1 passed; 0 failed; 0 ignored' ;;
             --show-output) echo 'test a ... ok'
                 echo 'test b has been running for over 60 seconds'
                 sleep 600 & wait ;;
             esac",
        );
        let shown = report.shown();
        assert!(
            shown.contains("FAILED: test b hung and was ended"),
            "{shown}"
        );
        let counts = report.into_sum().counts;
        assert_eq!(counts.to_string(), "2 passed, 1 failed, 0 skipped");
    }

    /// As a test of a daemon does.
    #[test]
    fn program_sees_the_end_of_a_daemon_that_it_has_started() {
        let this = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(this)).unwrap();
        let report = supervised(
            "daemon",
            "case \"$*\" in
             *--list*) ;;
             --show-output) daemon=$(sh -c 'sleep 0.1 >/dev/null & echo $!')
                 for n in $(seq 6000); do kill -0 $daemon || break; sleep 0.01; done
                 if kill -0 $daemon; then exit 1; fi
                 echo 'test a ... ok'
                 echo 'test result: ok. 1 passed; 0 failed; 0 ignored' ;;
             esac",
        );
        rustix::process::set_child_subreaper(None).unwrap();
        let counts = report.into_sum().counts;
        assert_eq!(counts.to_string(), "1 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn program_without_results_fails_once() {
        let report = supervised("without", "echo 'cannot start'; exit 3");
        let shown = report.shown();
        assert!(
            shown.contains("the program failed: exit status: 3"),
            "{shown}"
        );
        let counts = report.into_sum().counts;
        assert_eq!(counts.to_string(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn test_that_is_slow_and_ends_is_not_hung() {
        let mut slow = SlowTests::default();
        let now = Instant::now();
        slow.look_at("test a has been running for over 60 seconds\n", now);
        assert_eq!(slow.running_for(Duration::ZERO, now), ["a"]);
        slow.look_at(
            "test a has been running for over 60 seconds\ntest a ... ok\n",
            now,
        );
        assert!(slow.running_for(Duration::ZERO, now).is_empty());
    }
}
