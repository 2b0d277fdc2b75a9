//! DPDK's testpmd, which moves frames between devices of its command line on one processor.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use carina_sys::end_with_parent;

use crate::cpu_time;
use crate::error::{Attempt, Error, Result};

/// What a testpmd consists of.
#[derive(Debug, Clone)]
pub(crate) struct TestpmdConfig<'a> {
    /// The processor of its command line.
    pub(crate) main_cpu: usize,
    /// The processor on which it moves frames.
    pub(crate) cpu: usize,
    /// Where its files are.
    pub(crate) directory: &'a Path,
    /// Its devices, one a port, as `--vdev` takes them.
    pub(crate) devices: &'a [String],
    /// What it does with frames: a value of `--forward-mode`.
    pub(crate) mode: &'a str,
    /// Bytes of a frame, without FCS: of those that it makes, and at most of those that come.
    pub(crate) frame_bytes: u64,
}

/// What a port moves, in frames a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PortRate {
    /// Frames that came.
    pub(crate) received: u64,
    /// Frames that went.
    pub(crate) sent: u64,
}

/// A testpmd that waits for commands. It ends with this value, and with the thread that starts it.
#[derive(Debug)]
pub(crate) struct Testpmd {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    log: PathBuf,
    ports: usize,
}

impl Testpmd {
    /// Whether there is such a program.
    pub(crate) fn is_there() -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|directory| directory.join(PROGRAM).is_file())
    }

    /// Starts it, and waits until its devices are set up.
    pub(crate) fn start(config: &TestpmdConfig<'_>) -> Result<Testpmd> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let log = config.directory.join(format!("testpmd-{number}.log"));
        let errors = File::create(&log).attempt(format!("writing {}", log.display()))?;
        // Into a pipe it would write its answers in blocks of 4 KiB.
        let mut command = Command::new("stdbuf");
        command
            .args(["-oL", PROGRAM])
            .args(config.words(number))
            .env("RUNTIME_DIRECTORY", config.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = end_with_parent(&mut command)
            .spawn()
            .attempt(format!("starting {PROGRAM} by stdbuf"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes");
        };
        let (sender, lines) = channel();
        // Ends with the child's output.
        thread::spawn(move || {
            let all = BufReader::new(output).lines();
            for line in all.map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut testpmd = Testpmd {
            child,
            input,
            lines,
            log,
            ports: config.devices.len(),
        };
        // The answer to a first command shows that all is set up.
        testpmd.rates()?;
        Ok(testpmd)
    }

    /// Begins to move frames.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.command("start")
    }

    /// Ends that.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.command("stop")
    }

    /// What each port has moved since the last call, by the clock of testpmd.
    pub(crate) fn rates(&mut self) -> Result<Vec<PortRate>> {
        self.command("show port stats all")?;
        let deadline = Instant::now() + PATIENCE;
        let (mut rates, mut received) = (Vec::new(), 0);
        while rates.len() < self.ports {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failed(&format!("no statistics within {PATIENCE:?}")));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.failed("it has ended")),
            };
            // Of a port, what came is shown first.
            received = rate_in(&line, "Rx-pps:").unwrap_or(received);
            if let Some(sent) = rate_in(&line, "Tx-pps:") {
                rates.push(PortRate { received, sent });
            }
        }
        Ok(rates)
    }

    /// CPU time of the thread that moves frames, in ns.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let found = fs::read_dir(&tasks)
            .attempt(&tasks)?
            .flatten()
            .find_map(|task| {
                let name = fs::read_to_string(task.path().join("comm")).ok()?;
                if !name.contains("worker-1") && !name.contains("worker1") {
                    return None;
                }
                cpu_time::of_task(&task.path())
            });
        found.ok_or_else(|| Error::Proc(format!("{tasks}: no forwarding thread of {PROGRAM}")))
    }

    fn command(&mut self, text: &str) -> Result<()> {
        let written = writeln!(self.input, "{text}");
        written.map_err(|error| self.failed(&format!("telling it to {text}: {error}")))
    }

    /// An error with what it wrote last to its log.
    fn failed(&self, what: &str) -> Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LINES_SHOWN);
        Error::NoAnswer(format!("{PROGRAM}: {what}")).with(lines[from..].join("\n"))
    }
}

impl TestpmdConfig<'_> {
    fn words(&self, number: usize) -> Vec<String> {
        let TestpmdConfig {
            main_cpu,
            cpu,
            frame_bytes,
            mode,
            ..
        } = self;
        let buffer_bytes = (frame_bytes + BUFFER_EXTRA).max(BUFFER_BYTES);
        let mut words = vec![
            format!("--lcores=0@{main_cpu},1@{cpu}"),
            format!("--file-prefix=carina-bench-{}-{number}", std::process::id()),
        ];
        let memory = ["--no-pci", "--no-huge", "-m", "256", "--no-shconf"];
        words.extend(memory.map(str::to_owned));
        words.push("--no-telemetry".to_owned());
        let devices = self.devices.iter();
        words.extend(devices.flat_map(|device| ["--vdev".to_owned(), device.clone()]));
        words.extend(["--", "-i", "--nb-cores=1", "--no-flush-rx"].map(str::to_owned));
        words.extend([
            format!("--forward-mode={mode}"),
            "--total-num-mbufs=16384".to_owned(),
            format!("--mbuf-size={buffer_bytes}"),
        ]);
        if *mode == "txonly" {
            words.push(format!("--txpkts={frame_bytes}"));
        }
        words
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rate in a line of statistics of one port: `  Tx-pps:     10394160          Tx-bps: …`.
fn rate_in(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Tells apart those of one process.
static NEXT: AtomicUsize = AtomicUsize::new(0);

const PROGRAM: &str = "dpdk-testpmd";
/// Why there is no such program, for those who want it.
pub(crate) const NOT_THERE: &str =
    "there is no dpdk-testpmd here; the packages are `dpdk` and `dpdk-dev` (Debian)";
const PATIENCE: Duration = Duration::from_secs(60);
const LINES_SHOWN: usize = 20;
/// Bytes of a buffer where frames are not longer: what testpmd takes by itself.
const BUFFER_BYTES: u64 = 2176;
/// Bytes of a buffer beside the frame: DPDK's headroom, and a header of virtio.
const BUFFER_EXTRA: u64 = 128 + 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_from_statistics() {
        let line = "  Tx-pps:     10394160          Tx-bps:            0";
        assert_eq!(rate_in(line, "Tx-pps:"), Some(10_394_160));
        assert_eq!(rate_in(line, "Rx-pps:"), None);
    }
}
