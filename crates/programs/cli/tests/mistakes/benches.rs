//! Tests of benchmarks that are ended or killed, or that find a system that does not work.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::node::CARINA;

/// A benchmark that measures for a long time. It ends with its test.
struct Bench(Child);

impl Bench {
    fn start(words: &[&str]) -> Bench {
        let mut command = Command::new(CARINA);
        command.args(["--json", "bench"]).args(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Bench(command.spawn().unwrap())
    }

    /// The directory of the files of its node.
    fn directory(&self) -> PathBuf {
        self.directory_of("local")
    }

    fn directory_of(&self, bench: &str) -> PathBuf {
        format!("/dev/shm/carina-bench-{bench}-{}", self.0.id()).into()
    }

    /// Waits until the benchmark measures: its node and its second process run.
    fn measures(&self) -> Vec<Process> {
        eventually("the bench measures", || {
            let children = children_of(self.0.id());
            let has_files = self.directory().join("peer.log").exists();
            (children.len() == 2 && has_files).then_some(children)
        })
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn end(mut self) -> Output {
        let out = self.0.stdout.take().unwrap();
        let err = self.0.stderr.take().unwrap();
        let read = |mut stream: Box<dyn std::io::Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                bytes
            })
        };
        let (stdout, stderr) = (read(Box::new(out)), read(Box::new(err)));
        let status = self.0.wait().unwrap();
        Output {
            status,
            stdout: stdout.join().unwrap(),
            stderr: stderr.join().unwrap(),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match found() {
            Some(found) => return found,
            None => assert!(Instant::now() < until, "{what}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process, identified by its process id and start time.
#[derive(Debug, Clone, PartialEq)]
struct Process {
    pid: u32,
    started: String,
}

/// The parent and the start time of a process; `None` if it has ended.
fn look(pid: u32) -> Option<(u32, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let is_over = matches!(fields[0], "Z" | "X");
    (!is_over).then(|| (fields[1].parse().unwrap(), fields[19].to_owned()))
}

fn children_of(parent: u32) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let child = |pid: u32| {
        let (of, started) = look(pid)?;
        (of == parent).then_some(Process { pid, started })
    };
    pids.filter_map(child).collect()
}

fn is_alive(process: &Process) -> bool {
    look(process.pid).is_some_and(|(_, started)| started == process.started)
}

/// Waits until processes have ended, and returns how long that took.
fn gone(processes: &[Process]) -> Duration {
    let start = Instant::now();
    eventually("what the bench has started ends", || {
        (!processes.iter().any(is_alive)).then_some(())
    });
    start.elapsed()
}

const TWO_SECONDS: Duration = Duration::from_secs(2);

/// Requires that something takes less than two seconds. On a busy machine a single attempt may be
/// slow, but a slow program is always slow. So the best of up to five attempts counts.
fn takes_less_than_two_seconds(mut once: impl FnMut() -> Duration) {
    let mut elapsed = Vec::new();
    while elapsed.iter().all(|elapsed| *elapsed >= TWO_SECONDS) {
        assert!(elapsed.len() < 5, "{elapsed:?}");
        elapsed.push(once());
    }
}

const LONG: [&str; 5] = ["local", "--sizes", "64", "--time", "10s"];

#[test]
fn interrupt_ends_a_bench_and_all_that_it_has_started() {
    for signal in [Signal::INT, Signal::TERM] {
        takes_less_than_two_seconds(|| {
            let bench = Bench::start(&LONG);
            let children = bench.measures();
            let directory = bench.directory();
            bench.signal(signal);
            let start = Instant::now();
            let output = bench.end();
            gone(&children);
            let elapsed = start.elapsed();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(130), "{printed}");
            assert!(printed.contains("interrupted"), "{printed}");
            assert!(!directory.exists());
            elapsed
        });
    }
}

#[test]
fn killed_bench_leaves_no_process_and_the_next_takes_its_file() {
    let mut directory = PathBuf::new();
    takes_less_than_two_seconds(|| {
        let bench = Bench::start(&LONG);
        let children = bench.measures();
        directory = bench.directory();
        bench.signal(Signal::KILL);
        let output = bench.end();
        assert!(output.status.code().is_none());
        gone(&children)
    });
    // After the benchmark was killed, its files remain. The next benchmark removes them. That may
    // be one of another test, so the files are not checked in between.
    let next = Bench::start(&LONG);
    next.measures();
    eventually("the files of the killed bench go", || {
        (!directory.exists()).then_some(())
    });
    next.signal(Signal::INT);
    next.end();
}

#[test]
fn bench_that_ends_takes_testpmd_along() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join("dpdk-testpmd").is_file()) {
        println!("SKIP: there is no dpdk-testpmd here (packages dpdk, dpdk-dev)");
        return;
    }
    for signal in [Signal::INT, Signal::KILL] {
        takes_less_than_two_seconds(|| bench_and_testpmd_end_by(signal));
    }
}

/// Ends a benchmark while testpmd runs, and returns how long that took.
fn bench_and_testpmd_end_by(signal: Signal) -> Duration {
    let cases = ["engine", "--cases", "source-sink"];
    let bench = Bench::start(&[&cases[..], &["--time", "100ms", "--runs", "100000"]].concat());
    let is_testpmd = |child: &Process| {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", child.pid));
        name.is_ok_and(|name| name.trim() == "dpdk-testpmd")
    };
    let children = eventually("testpmd runs", || {
        let children = children_of(bench.0.id());
        children.iter().any(is_testpmd).then_some(children)
    });
    let directory = bench.directory_of("engine");
    bench.signal(signal);
    let start = Instant::now();
    let output = bench.end();
    gone(&children);
    let elapsed = start.elapsed();
    let code = (signal == Signal::INT).then_some(130);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), code, "{printed}");
    // A killed benchmark leaves its files to the next one.
    assert!(signal == Signal::KILL || !directory.exists());
    let _ = std::fs::remove_dir_all(directory);
    elapsed
}

#[test]
fn measurement_that_fails_is_reported_while_the_others_go_on() {
    let bench = Bench::start(&["local", "--sizes", "64", "--time", "300ms", "--runs", "1"]);
    // A directory takes the place of the Unix socket, so that this system cannot be measured.
    eventually("the bench has a directory", || {
        let socket = bench.directory().join("seqpacket.sock");
        std::fs::create_dir(&socket).is_ok().then_some(())
    });
    let output = bench.end();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("not measured: run 1, one-way, unix with SDUs of 64 bytes"),
        "{printed}"
    );
    // The output has the results, and then the failure.
    let mut documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let results = documents.next().unwrap().unwrap();
    let rows = results["rows"].as_array().unwrap();
    let has = |system: &str| rows.iter().any(|row| row["system"] == system);
    for system in ["carina", "limit", "udp", "tcp"] {
        assert!(has(system), "{system}: {printed}");
    }
    assert!(!has("unix"));
    assert_eq!(
        results["failures"].as_array().unwrap().len(),
        2,
        "{results}"
    );
}
