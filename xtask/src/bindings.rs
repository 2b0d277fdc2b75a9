//! Tests of the bindings for other languages, in `bindings/`, outside of the workspace.
//!
//! Crates there have workspaces of their own: their test programs are built and run like the others
//! ([`RUST`]). Other languages have toolchains of their own; without one, its tests count as one
//! that was skipped.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::program;
use crate::report::{Counts, Sum};

/// The bindings that are crates, relative to the root.
pub(crate) const RUST: [&str; 1] = ["bindings/tokio"];

/// Runs the tests of the Go module, prints what `go test` prints, and returns their results.
pub(crate) fn go(root: &Path) -> Sum {
    let directory = root.join("bindings/go");
    println!("\n{GO}: go test");
    if !answers("go", "version") {
        return skipped("SKIP: Go is not installed; the Debian package is golang-go");
    }
    let mut command = Command::new("go");
    command.args(["test", "-json", "-count=1"]);
    // The race detector needs a C compiler. Nothing else of the module uses one.
    if answers("cc", "--version") {
        command.arg("-race").env("CGO_ENABLED", "1");
    }
    command.arg("./...").current_dir(directory);
    command.env(program::VARIABLE, program::carina());
    match command.stdin(Stdio::null()).output() {
        Ok(output) => sum_of_events("go test", &output),
        Err(error) => failed(format!("go test cannot be run: {error}")),
    }
}

/// The name of the Go module in reports.
pub(crate) const GO: &str = "bindings/go";

/// Runs the tests of the Python package, prints what pytest prints, and returns their results.
pub(crate) fn python(root: &Path) -> Sum {
    println!("\n{PYTHON}: pytest");
    let mut command = Command::new(root.join("bindings/python/test"));
    command.env("CARINA_TEST_EVENTS", "1");
    command.env(program::VARIABLE, program::carina());
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return failed(format!("bindings/python/test cannot be run: {error}")),
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    match printed.lines().find(|line| line.starts_with("SKIP: ")) {
        Some(reason) if output.status.success() => skipped(reason),
        _ => sum_of_events("pytest", &output),
    }
}

/// The name of the Python package in reports.
pub(crate) const PYTHON: &str = "bindings/python";

/// Reads events in the form of `go doc test2json`, which `program` has printed. Subtests count with
/// their test.
fn sum_of_events(program: &str, output: &Output) -> Sum {
    let mut sum = Sum::default();
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut rest = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let shown = event["Output"].as_str().unwrap_or_default();
        print!("{shown}");
        let Some(test) = event["Test"].as_str() else {
            rest.push_str(shown);
            continue;
        };
        let top = test.split('/').next().unwrap_or(test);
        texts.entry(top.to_owned()).or_default().push_str(shown);
        if top != test {
            continue;
        }
        let text = texts.get(top).cloned().unwrap_or_default();
        match event["Action"].as_str() {
            Some("pass") => sum.counts.passed += 1,
            Some("fail") => {
                sum.counts.failed += 1;
                sum.failed.insert(top.to_owned(), text);
            }
            Some("skip") => {
                sum.counts.skipped += 1;
                sum.skipped.insert(top.to_owned(), reason(&text));
            }
            _ => {}
        }
    }
    let failed_without_a_test = !output.status.success() && sum.counts.failed == 0;
    let ran = sum.counts.passed + sum.counts.skipped > 0;
    if failed_without_a_test || !(ran || sum.counts.failed > 0) {
        rest.push_str(&String::from_utf8_lossy(&output.stderr));
        sum.counts.failed += 1;
        sum.causes
            .push(format!("{program} {}: {}", output.status, rest.trim()));
    }
    sum
}

/// The reason in the output of a skipped test.
fn reason(text: &str) -> String {
    let line = text.lines().find_map(|line| line.split_once("SKIP: "));
    line.map_or_else(
        || "SKIP".to_owned(),
        |(_, reason)| format!("SKIP: {reason}"),
    )
}

fn answers(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

fn skipped(reason: &str) -> Sum {
    println!("{reason}");
    Sum {
        counts: Counts {
            skipped: 1,
            ..Counts::default()
        },
        skipped: BTreeMap::from([("all tests".to_owned(), reason.to_owned())]),
        ..Sum::default()
    }
}

fn failed(cause: String) -> Sum {
    println!("{cause}");
    Sum {
        counts: Counts {
            failed: 1,
            ..Counts::default()
        },
        causes: vec![cause],
        ..Sum::default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn sum(code: i32, stdout: &str) -> Sum {
        sum_of_events(
            "go test",
            &Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: stdout.into(),
                stderr: Vec::new(),
            },
        )
    }

    #[test]
    fn go_tests_count_without_their_subtests() {
        let sum = sum(
            1,
            r#"{"Action":"run","Test":"TestA"}
            {"Action":"pass","Test":"TestA/part"}
            {"Action":"pass","Test":"TestA"}
            {"Action":"output","Test":"TestB","Output":"    b_test.go:5: SKIP: no node\n"}
            {"Action":"skip","Test":"TestB"}
            {"Action":"output","Test":"TestC/x","Output":"it is 3\n"}
            {"Action":"fail","Test":"TestC"}
            {"Action":"fail"}"#,
        );
        let Counts {
            passed,
            failed,
            skipped,
        } = sum.counts;
        assert_eq!((passed, failed, skipped), (1, 1, 1));
        assert_eq!(sum.skipped["TestB"], "SKIP: no node");
        assert_eq!(sum.failed["TestC"], "it is 3\n");
    }

    #[test]
    fn go_code_that_does_not_build_is_one_failure() {
        let sum = sum(
            1,
            r#"{"Action":"build-output","Output":"x.go:1: bad\n"}
            {"Action":"fail"}"#,
        );
        assert_eq!(sum.counts.failed, 1);
        assert!(sum.causes[0].contains("x.go:1: bad"), "{:?}", sum.causes);
    }

    #[test]
    fn no_go_test_at_all_is_a_failure() {
        assert_eq!(sum(0, "").counts.failed, 1);
    }
}
