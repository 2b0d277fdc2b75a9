//! DPDK's side: testpmd, which forwards between two null devices on one core.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Rate;
use crate::error::{Attempt, Error, Result};

/// A testpmd that waits for commands. Ends with this value.
pub(super) struct Testpmd {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Testpmd {
    /// Starts it: its command line on `main_cpu`, forwarding on `cpu`. `None` when there is no such
    /// program.
    pub(super) fn start(main_cpu: usize, cpu: usize, size: u64) -> Result<Option<Testpmd>> {
        let is_there = |directory: PathBuf| directory.join(PROGRAM).is_file();
        let path = env::var_os("PATH").unwrap_or_default();
        if !env::split_paths(&path).any(is_there) {
            return Ok(None);
        }
        // Into a pipe it would write its answers in blocks of 4 KiB.
        let mut command = Command::new("stdbuf");
        command
            .args(["-oL", PROGRAM])
            .arg("--lcores")
            .arg(format!("0@{main_cpu},1@{cpu}"))
            .args([
                "--no-pci",
                "--no-huge",
                "-m",
                "256",
                "--no-shconf",
                "--no-telemetry",
            ])
            .arg("--file-prefix")
            .arg(format!("carina-bench-{}", std::process::id()));
        for device in ["net_null0", "net_null1"] {
            command.arg("--vdev").arg(format!("{device},size={size}"));
        }
        command
            .args([
                "--",
                "-i",
                "--forward-mode=io",
                "--nb-cores=1",
                "--no-flush-rx",
                "--total-num-mbufs=16384",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .attempt(format!("starting {PROGRAM} by stdbuf"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes");
        };
        let (sender, lines) = channel();
        // Ends with the child's output.
        thread::spawn(move || {
            for line in BufReader::new(output)
                .lines()
                .map_while(std::result::Result::ok)
            {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut peer = Testpmd {
            child,
            input,
            lines,
        };
        // The answer to a first command shows that all is set up.
        peer.stats()?;
        Ok(Some(peer))
    }

    /// Forwards for a third of `time_ns`, and then for `time_ns`, in which it is measured.
    pub(super) fn measure(&mut self, time_ns: u64) -> Result<Rate> {
        self.command("start")?;
        thread::sleep(Duration::from_nanos(time_ns / 3));
        self.stats()?;
        let (start, cpu_start) = (Instant::now(), self.cpu_ns()?);
        thread::sleep(Duration::from_nanos(time_ns));
        let cpu = (self.cpu_ns()? - cpu_start) as f64;
        let wall = start.elapsed().as_nanos() as f64;
        // Rates since the stats before, by testpmd's own clock.
        let per_second = self.stats()? as f64;
        self.command("stop")?;
        let frames = per_second * wall / 1e9;
        Ok(Rate {
            mpps: per_second / 1e6,
            ns_per_frame: cpu / frames,
            cpu_share: cpu / wall,
        })
    }

    fn command(&mut self, text: &str) -> Result<()> {
        writeln!(self.input, "{text}").attempt(format!("telling {PROGRAM} to {text}"))
    }

    /// Frames a second that both ports sent since the last call.
    fn stats(&mut self) -> Result<u64> {
        self.command("show port stats all")?;
        let deadline = Instant::now() + PATIENCE;
        let mut rates = Vec::new();
        let mut last = Vec::new();
        while rates.len() < PORTS {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    rates.extend(rate_in(&line));
                    last.push(line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let text = format!("{PROGRAM}: no statistics within {PATIENCE:?}");
                    return Err(Error::NoAnswer(text));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let from = last.len().saturating_sub(LINES_SHOWN);
                    let text = format!("{PROGRAM} ended:\n{}", last[from..].join("\n"));
                    return Err(Error::NoAnswer(text));
                }
            }
        }
        Ok(rates.iter().sum())
    }

    /// CPU time of the thread that forwards.
    fn cpu_ns(&self) -> Result<u64> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let found = fs::read_dir(&tasks)
            .attempt(&tasks)?
            .flatten()
            .find_map(|task| {
                let name = fs::read_to_string(task.path().join("comm")).ok()?;
                if !name.contains("worker-1") {
                    return None;
                }
                let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
                times.split_whitespace().next()?.parse().ok()
            });
        found.ok_or_else(|| Error::Proc(format!("{tasks}: no forwarding thread of {PROGRAM}")))
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
fn rate_in(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("Tx-pps:")?;
    rest.split_whitespace().next()?.parse().ok()
}

const PROGRAM: &str = "dpdk-testpmd";
const PORTS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);
const LINES_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_from_statistics() {
        let line = "  Tx-pps:     10394160          Tx-bps:            0";
        assert_eq!(rate_in(line), Some(10_394_160));
        assert_eq!(rate_in("  Rx-pps:     10394160          Rx-bps:  0"), None);
    }
}
