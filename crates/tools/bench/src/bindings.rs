//! Measures the bindings for other languages beside what their programs use today: in Python Unix
//! sockets, asyncio, uvloop, pyzmq and zenoh, in Go TCP on the loopback interface.
//!
//! ```text
//!   carina bench bindings -- python3 bench.py -- sender == flow, socket, ... == receiver
//!                        \-- go-bench ---------- net/http client == flow, TCP == server
//! ```
//!
//! The programs of the measurement are in the languages themselves: `bindings/python/bench.py`,
//! which is part of this program, and `bindings/go/bench`, which needs the sources of the module.
//! One run of a program measures all systems one right after the other, and begins with another
//! system than the run before. What is not installed is left out, with a note.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use carina_lab::{Network, TestNode};
use carina_measure::results::{Metric, OURS, Results, Row, Samples, machine};
use carina_scratch::Scratch;
use carina_sys::end_with_parent;
use serde::Deserialize;

use crate::Options;
use crate::error::{Attempt, Error, Result};
use crate::rate::compare_with_bars;

/// A case: its name in the results, and the program that measures it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// The program that measures the case.
    pub language: Language,
    /// Default sizes of messages in bytes.
    pub sizes: &'static [u64],
}

/// A language, and with it a program that measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `bindings/python/bench.py`, with this case.
    Python(&'static str),
    /// `bindings/go/bench`.
    Go,
}

/// The cases of the benchmark.
pub const CASES: [Case; 4] = [
    Case {
        name: "python",
        language: Language::Python("blocking"),
        sizes: &[SMALL, LARGE],
    },
    Case {
        name: "python-asyncio",
        language: Language::Python("aio"),
        sizes: &[SMALL, LARGE],
    },
    Case {
        name: "python-asyncio-echo",
        language: Language::Python("aio-echo"),
        sizes: &[SMALL],
    },
    Case {
        name: "go-http",
        language: Language::Go,
        sizes: &[SMALL, 16_384],
    },
];

/// Possible sizes of messages in bytes.
pub const SIZES_POSSIBLE: RangeInclusive<usize> = 1..=1 << 20;

/// The systems in the order of the tables. `carina-views` receives in place, `carina-uvloop` runs
/// in uvloop's event loop, as `uvloop` does over Unix sockets.
pub const SYSTEMS: [&str; 8] = [
    OURS,
    "carina-views",
    CARINA_UVLOOP,
    UNIX,
    UVLOOP,
    PYZMQ,
    ZENOH,
    TCP,
];

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 6] = [
    (
        "python",
        Metric::MsgsPerS,
        "Python, blocking, messages a second",
    ),
    (
        "python",
        Metric::GoodputMbps,
        "Python, blocking, goodput, Mbit/s",
    ),
    (
        "python-asyncio",
        Metric::MsgsPerS,
        "Python, asyncio, messages a second",
    ),
    (
        "python-asyncio",
        Metric::GoodputMbps,
        "Python, asyncio, goodput, Mbit/s",
    ),
    (
        "python-asyncio-echo",
        Metric::MsgsPerS,
        "Python, asyncio, echos a second",
    ),
    (
        "go-http",
        Metric::MsgsPerS,
        "Go, net/http, requests a second",
    ),
];

/// Where the programs of the languages are.
#[derive(Debug, Clone)]
pub struct Toolchains {
    /// The Python interpreter, in which the package `carina` is installed.
    pub python: PathBuf,
    /// Directory of the sources of the Go module.
    pub go_module: PathBuf,
}

/// Measures. The sizes of `options` apply to all cases; without sizes each case has its own.
///
/// # Errors
/// The node does not start, or too many measurements in succession fail.
pub fn run(options: &Options<Case>, toolchains: &Toolchains) -> Result<Results> {
    let mut notes = vec![NOTE.to_owned()];
    let mut cases = Vec::new();
    for case in &options.cases {
        match toolchains.missing(case.language) {
            None => cases.push(*case),
            Some(reason) => notes.push(format!("{}: left out: {reason}", case.name)),
        }
    }
    let site = Site::start(
        toolchains,
        cases.iter().any(|case| case.language == Language::Go),
    )?;
    let mut samples = Samples::default();
    let mut failures = Vec::new();
    for case in cases {
        let failed = options.of_case(case, case.sizes).measure_each(
            |case| case.name,
            |run, case, size| {
                for (system, per_second) in site.measure(run, case, size, options.time_ns)? {
                    samples.add(case.name, size, system, Metric::MsgsPerS, per_second);
                    let mbps = per_second * size as f64 * 8.0 / 1e6;
                    samples.add(case.name, size, system, Metric::GoodputMbps, mbps);
                }
                Ok(())
            },
        )?;
        failures.extend(failed);
        if let Language::Python(_) = case.language {
            notes.extend(toolchains.missing_modules(case.name));
        }
    }
    let rows = samples.rows();
    let factors = samples.factors();
    for (system, peer, bars) in BARS {
        let bar = |case: &str| bars.iter().find(|bar| bar.0 == case).map(|bar| bar.1);
        let factors = samples.factors_of(system);
        let lines = compare_with_bars(&factors, peer, Metric::MsgsPerS, bar);
        notes.extend(lines.into_iter().map(|line| format!("{system}, {line}")));
    }
    notes.extend(absolute_bars(&rows));
    Ok(Results {
        bench: "bindings".to_owned(),
        machine: machine(),
        notes,
        rows,
        factors,
        failures,
    })
}

/// A sentence for each bar that is a number and not a ratio, where its row was measured.
fn absolute_bars(rows: &[Row]) -> Vec<String> {
    let sentence = |(system, size, metric, bar): (&str, u64, Metric, f64)| {
        let row = rows.iter().find(|row| {
            row.case == CASES[0].name
                && row.system == system
                && row.sdu == size
                && row.metric == metric
        })?;
        let verdict = if row.median >= bar {
            "held"
        } else {
            "NOT HELD"
        };
        let (median, best) = (row.median, row.high);
        Some(format!(
            "python at {size} bytes, {system}: {median:.0}, best run {best:.0}; bar {bar:.0}: \
             {verdict}"
        ))
    };
    ABSOLUTE_BARS.into_iter().filter_map(sentence).collect()
}

impl Toolchains {
    /// Why a language cannot be measured; `None` if it can.
    fn missing(&self, language: Language) -> Option<String> {
        match language {
            Language::Python(_) if self.has_module("carina") => None,
            Language::Python(_) => Some(format!(
                "{} has no package carina; `make wheel` builds it, and --python names an \
                 interpreter that has it",
                self.python.display()
            )),
            Language::Go if !self.go_module.join("bench/main.go").is_file() => Some(format!(
                "{} has no sources of the Go module; --go-module names their directory",
                self.go_module.display()
            )),
            Language::Go => (!succeeds(Command::new("go").arg("version")))
                .then(|| "Go is not installed; the Debian package is golang-go".to_owned()),
        }
    }

    /// A note on the modules of other systems that are not installed.
    fn missing_modules(&self, case: &str) -> Option<String> {
        let missing: Vec<&str> = MODULES
            .into_iter()
            .filter(|(module, _)| !self.has_module(module))
            .map(|(_, package)| package)
            .collect();
        (!missing.is_empty()).then(|| {
            let python = self.python.display();
            let packages = missing.join(", ");
            format!("{case}: not installed for {python}, left out: {packages}")
        })
    }

    fn has_module(&self, module: &str) -> bool {
        let look =
            "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))";
        succeeds(Command::new(&self.python).args(["-c", look, module]))
    }
}

/// The node, and the programs as files: `bench.py`, which its second process imports, and the one
/// in Go.
struct Site<'a> {
    toolchains: &'a Toolchains,
    carina: PathBuf,
    node: TestNode,
    directory: Scratch,
}

/// A row of `bench.py`.
#[derive(Deserialize)]
struct PythonRow {
    system: String,
    messages_per_s: f64,
}

/// A row of `bindings/go/bench`.
#[derive(Deserialize)]
struct GoRow {
    system: String,
    requests_per_s: Vec<f64>,
}

impl<'a> Site<'a> {
    fn start(toolchains: &'a Toolchains, measures_go: bool) -> Result<Site<'a>> {
        let own = std::env::current_exe().attempt("finding this program")?;
        let directory = Scratch::new(&format!("bindings-files-{}", std::process::id()))?;
        let program = directory.path().join("bench.py");
        std::fs::write(&program, PYTHON_PROGRAM).attempt("writing bench.py")?;
        if measures_go {
            let mut build = Command::new("go");
            build.current_dir(&toolchains.go_module);
            build.env("CGO_ENABLED", "0");
            build.args(["build", "-buildvcs=false", "-o"]);
            build.arg(directory.path().join(GO_PROGRAM)).arg("./bench");
            output_of(build, "go build")?;
        }
        Ok(Site {
            toolchains,
            carina: own.with_file_name("carina"),
            node: TestNode::start("bindings", Network::Shared, None)?,
            directory,
        })
    }

    /// One run of all systems; returns messages or requests per second of each.
    fn measure(
        &self,
        run: usize,
        case: Case,
        size: u64,
        time_ns: u64,
    ) -> Result<Vec<(&'static str, f64)>> {
        let first = run.saturating_sub(1).to_string();
        let size = size.to_string();
        let time = Duration::from_nanos(time_ns);
        match case.language {
            Language::Python(name) => {
                let mut command = Command::new(&self.toolchains.python);
                command.arg(self.directory.path().join("bench.py"));
                command.args(["--json", "--runs", "1", "--first", &first]);
                command.args(["--case", name, "--size", &size]);
                command.args(["--seconds", &time.as_secs_f64().to_string()]);
                command.env("CARINA_PROGRAM", &self.carina);
                let output = output_of(command, "bench.py")?;
                let rows: Vec<PythonRow> =
                    serde_json::from_str(&output).attempt("reading the rows of bench.py")?;
                rows.into_iter()
                    .map(|row| Ok((python_system(&row.system)?, row.messages_per_s)))
                    .collect()
            }
            Language::Go => {
                let mut command = Command::new(self.directory.path().join(GO_PROGRAM));
                command.args(["-runs", "1", "-run"]).arg(self.node.path());
                command.args(["-first", &first, "-size", &size]);
                command.args(["-time", &format!("{time_ns}ns")]);
                let output = output_of(command, "the program in Go")?;
                let mut all = Vec::new();
                for line in output.lines() {
                    let row: GoRow =
                        serde_json::from_str(line).attempt("reading a row of the program in Go")?;
                    let known = SYSTEMS.into_iter().find(|name| *name == row.system);
                    let rate = row.requests_per_s.first().copied();
                    let (Some(system), Some(rate)) = (known, rate) else {
                        return Err(Error::NoAnswer(format!("Go has measured {line}")));
                    };
                    all.push((system, rate));
                }
                Ok(all)
            }
        }
    }
}

/// The name in the results of a system of `bench.py`.
fn python_system(name: &str) -> Result<&'static str> {
    let known = PYTHON_SYSTEMS
        .iter()
        .find(|(of_python, _)| *of_python == name);
    let unknown = || Error::NoAnswer(format!("bench.py has measured an unknown system, {name}"));
    known.map(|(_, system)| *system).ok_or_else(unknown)
}

/// Runs a program and returns its standard output.
fn output_of(mut command: Command, what: &str) -> Result<String> {
    let command = end_with_parent(&mut command).stdin(Stdio::null());
    let output = command.output().attempt(format!("running {what}"))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        let error = Error::NoAnswer(format!("{what} ended with {}", output.status));
        return Err(error.with(printed.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn succeeds(command: &mut Command) -> bool {
    let command = end_with_parent(command).stdin(Stdio::null());
    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    ended.is_ok_and(|status| status.success())
}

const PYTHON_PROGRAM: &str = include_str!("../../../../bindings/python/bench.py");

/// File name of the program in Go.
const GO_PROGRAM: &str = "go-bench";

const NOTE: &str = "the programs of all systems of a language run in turns; sender and receiver \
    are two processes in Python, and one process in Go";

/// Systems of `bench.py`, and their names in the results.
const PYTHON_SYSTEMS: [(&str, &str); 11] = [
    ("carina", OURS),
    ("carina views", "carina-views"),
    ("unix socket", UNIX),
    ("pyzmq ipc", PYZMQ),
    ("zenoh", ZENOH),
    ("carina.aio", OURS),
    ("carina.aio uvloop", CARINA_UVLOOP),
    ("asyncio unix", UNIX),
    ("uvloop unix", UVLOOP),
    ("pyzmq asyncio", PYZMQ),
    ("zenoh asyncio", ZENOH),
];

const CARINA_UVLOOP: &str = "carina-uvloop";
const UNIX: &str = "unix";
const UVLOOP: &str = "uvloop";
const PYZMQ: &str = "pyzmq";
const ZENOH: &str = "zenoh";
const TCP: &str = "tcp";

/// Modules of other systems, and the packages that have them.
const MODULES: [(&str, &str); 3] = [
    ("uvloop", "uvloop"),
    ("zmq", "pyzmq"),
    ("zenoh", "eclipse-zenoh"),
];

/// A required ratio of the first system's rate to the second's, for each case.
type Bar = (&'static str, &'static str, &'static [(&'static str, f64)]);

/// The required ratios. There are two for uvloop: Carina in the event loop of asyncio, and both
/// systems in the event loop of uvloop.
const BARS: [Bar; 6] = [
    (
        OURS,
        UNIX,
        &[("python-asyncio", 2.0), ("python-asyncio-echo", 2.0)],
    ),
    (
        OURS,
        UVLOOP,
        &[("python-asyncio", 1.0), ("python-asyncio-echo", 1.0)],
    ),
    (
        CARINA_UVLOOP,
        UVLOOP,
        &[("python-asyncio", 1.0), ("python-asyncio-echo", 1.0)],
    ),
    (
        OURS,
        PYZMQ,
        &[("python-asyncio", 1.0), ("python-asyncio-echo", 1.0)],
    ),
    (OURS, ZENOH, &[("python-asyncio", 1.0)]),
    (OURS, TCP, &[("go-http", 1.3)]),
];

/// Required rates of blocking calls in Python: system, size of a message, metric, and rate.
const ABSOLUTE_BARS: [(&str, u64, Metric, f64); 3] = [
    (OURS, SMALL, Metric::MsgsPerS, 1e6),
    (OURS, LARGE, Metric::GoodputMbps, 40_000.0),
    ("carina-views", LARGE, Metric::GoodputMbps, 40_000.0),
];

const SMALL: u64 = 64;
const LARGE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_of_the_python_program_has_a_name_in_the_results() {
        let lines = PYTHON_PROGRAM.lines().map(str::trim);
        let systems: Vec<&str> = lines
            .filter_map(|line| line.strip_prefix("(\"")?.split_once("\", \""))
            .map(|(name, _)| name)
            .collect();
        assert!(systems.len() > 10, "{systems:?}");
        for system in systems {
            let name = python_system(system).unwrap();
            assert!(SYSTEMS.contains(&name), "{name}");
        }
        assert!(python_system("other").is_err());
    }

    #[test]
    fn each_bar_is_of_a_case_and_a_system() {
        for (system, peer, bars) in BARS {
            assert!(SYSTEMS.contains(&system), "{system}");
            assert!(SYSTEMS.contains(&peer), "{peer}");
            let is_case = |name: &str| CASES.iter().any(|case| case.name == name);
            assert!(bars.iter().all(|(case, _)| is_case(case)));
        }
    }

    #[test]
    fn toolchain_that_is_missing_is_named() {
        let none = Toolchains {
            python: "/nonexistent/python3".into(),
            go_module: "/nonexistent/go".into(),
        };
        let python = none.missing(Language::Python("aio")).unwrap();
        assert!(python.contains("/nonexistent/python3"), "{python}");
        let go = none.missing(Language::Go).unwrap();
        assert!(go.contains("--go-module"), "{go}");
    }
}
