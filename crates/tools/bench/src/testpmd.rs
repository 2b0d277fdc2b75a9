//! Runs DPDK's program testpmd on one processor; it forwards frames between the devices of its
//! command line.

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
use crate::installed::is_installed;

/// Configuration of a testpmd process.
#[derive(Debug, Clone)]
pub(crate) struct TestpmdConfig<'a> {
    /// Processor that runs the command line of testpmd.
    pub(crate) main_cpu: usize,
    /// Processor that forwards frames.
    pub(crate) cpu: usize,
    /// Directory for the files of testpmd.
    pub(crate) directory: &'a Path,
    /// Devices of testpmd, one for each port, as values of its option `--vdev`.
    pub(crate) devices: &'a [String],
    /// What testpmd does with frames: a value of its option `--forward-mode`.
    pub(crate) mode: &'a str,
    /// Length in bytes, without FCS, of the frames that it generates, and of the longest frame that
    /// it receives.
    pub(crate) frame_bytes: u64,
}

/// Rates of a port in frames per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PortRate {
    /// Frames received by the port, per second.
    pub(crate) received: u64,
    /// Frames sent by the port, per second.
    pub(crate) sent: u64,
}

/// A testpmd process that waits for commands. It ends when this value is dropped, or when the
/// thread that started it ends.
#[derive(Debug)]
pub(crate) struct Testpmd {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    log: PathBuf,
    ports: usize,
}

impl Testpmd {
    /// Whether the program is installed.
    pub(crate) fn is_installed() -> bool {
        is_installed(PROGRAM)
    }

    /// Starts the process, and waits until its devices are set up.
    pub(crate) fn start(config: &TestpmdConfig<'_>) -> Result<Testpmd> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let log = config.directory.join(format!("testpmd-{number}.log"));
        let errors = File::create(&log).attempt(format!("writing {}", log.display()))?;
        // Without `stdbuf`, testpmd would write to a pipe in blocks of 4 KiB.
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
        // This thread ends with the child's output.
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
        // An answer to a first command shows that everything is set up.
        testpmd.rates()?;
        Ok(testpmd)
    }

    /// Starts to forward frames.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.command("start")
    }

    /// Makes testpmd stop forwarding.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.command("stop")
    }

    /// The rates of each port since the last call, by testpmd's clock.
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
            // The received rate of a port is printed before the sent rate.
            received = rate_in(&line, "Rx-pps:").unwrap_or(received);
            if let Some(sent) = rate_in(&line, "Tx-pps:") {
                rates.push(PortRate { received, sent });
            }
        }
        Ok(rates)
    }

    /// CPU time of the forwarding thread, in ns.
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

    /// An error with the last lines of the log.
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
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rate in a line of a port's statistics: `  Tx-pps:     10394160          Tx-bps: …`.
fn rate_in(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Numbers the testpmd processes of this process.
static NEXT: AtomicUsize = AtomicUsize::new(0);

const PROGRAM: &str = "dpdk-testpmd";
/// Error text for a missing program.
pub(crate) const NOT_INSTALLED: &str =
    "there is no dpdk-testpmd here; the packages are `dpdk` and `dpdk-dev` (Debian)";
const PATIENCE: Duration = Duration::from_secs(60);
const LINES_SHOWN: usize = 20;
/// Default length of testpmd's buffers in bytes, which is enough for shorter frames.
const BUFFER_BYTES: u64 = 2176;
/// Bytes of a buffer in addition to the frame: DPDK's headroom, and a virtio header.
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
