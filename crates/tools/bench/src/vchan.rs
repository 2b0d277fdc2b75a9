//! The program `carina-vchan` (`vchan.c`), which measures a stream by libxenvchan.
//!
//! Carina's programs are static, so that they cannot load the library. The program sends, receives
//! and counts by itself, as the other systems of the benchmark do.

use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use carina_measure::summary::Summary;
use carina_measure::trial::client::Trial;
use carina_measure::trial::job::{Direction, SideReport};
use carina_namespaces::ChildProcess;
use carina_sys::end_with_parent;

use crate::error::{Attempt, Error, Result};

/// The program.
pub(crate) const PROGRAM: &str = "carina-vchan";

/// Where the domain offers the stream, in its directory of the xenstore.
pub(crate) const PATH: &str = "data/carina/vchan";

/// Longest message of the program, in bytes.
pub(crate) const VCHAN_SDU_MAX: u64 = 64 << 10;

/// A note for a Dom0 without the program.
pub(crate) const MISSING: &str = "libxenvchan: left out, because carina-vchan is not in a \
     directory of PATH; it is crates/tools/bench/src/vchan.c, compiled with libxenvchan";

/// The program in Dom0, connected with that in the domain. Dropping the last clone ends the
/// program.
#[derive(Debug, Clone)]
pub struct VchanClient(Arc<Mutex<Connected>>);

#[derive(Debug)]
struct Connected {
    jobs: PipeWriter,
    answers: Receiver<String>,
    _process: ChildProcess,
}

impl VchanClient {
    /// Starts the program, and has it connect to the domain.
    ///
    /// # Errors
    /// The program does not start.
    pub(crate) fn start(program: &Path, domain: u16) -> Result<VchanClient> {
        let what = "making a pipe";
        let (from_jobs, jobs) = std::io::pipe().attempt(what)?;
        let (from_answers, to_answers) = std::io::pipe().attempt(what)?;
        let path = format!("/local/domain/{domain}/{PATH}");
        let mut command = Command::new(program);
        command.args(["measure", &domain.to_string(), &path]);
        command.stdin(Stdio::from(from_jobs)).stdout(to_answers);
        let process = ChildProcess::start(end_with_parent(&mut command), PROGRAM)?;
        // The command has the other end of the pipe, which must not keep the pipe open.
        drop(command);
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(from_answers).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(VchanClient(Arc::new(Mutex::new(Connected {
            jobs,
            answers,
            _process: process,
        }))))
    }

    /// Sends messages of `sdu` bytes for `time_ns` nanoseconds.
    ///
    /// # Errors
    /// The program has ended, or does not answer in time.
    pub(crate) fn measure(&self, direction: Direction, sdu: u64, time_ns: u64) -> Result<Trial> {
        let mut connected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match direction {
            Direction::Forward => 0,
            Direction::Reverse => 1,
            Direction::Echo => 2,
        };
        let job = format!("{number} {sdu} {}\n", time_ns.div_ceil(1_000_000));
        let sent = connected.jobs.write_all(job.as_bytes());
        sent.attempt("giving carina-vchan a job")?;
        let limit = Duration::from_nanos(time_ns) + BESIDE;
        let line = connected.answers.recv_timeout(limit).map_err(|_| {
            Error::NoAnswer(format!("{PROGRAM} sent no result in {} s", limit.as_secs()))
        })?;
        trial(direction, &line)
            .ok_or_else(|| Error::NoAnswer(format!("{PROGRAM} sent no seven numbers: {line}")))
    }
}

/// Reads a line of the program.
fn trial(direction: Direction, line: &str) -> Option<Trial> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [messages, bytes, elapsed, cpu, avg, p50, p99] = words[..] else {
        return None;
    };
    let received: u64 = messages.parse().ok()?;
    let bytes = bytes.parse().ok()?;
    let (avg, p50, p99) = (avg.parse().ok()?, p50.parse().ok()?, p99.parse().ok()?);
    let rtt_us = (direction == Direction::Echo).then_some(Summary {
        count: received as usize,
        min: p50,
        avg,
        max: p99,
        stddev: 0.0,
        p50,
        p90: p99,
        p99,
    });
    let seen = SideReport {
        received,
        received_bytes: bytes,
        timed_bytes: bytes,
        elapsed_ns: elapsed.parse().ok()?,
        cpu_ns: cpu.parse().ok()?,
        rtt_us,
        ..SideReport::default()
    };
    let (client, server) = if direction == Direction::Forward {
        (SideReport::default(), seen)
    } else {
        (seen, SideReport::default())
    };
    Some(Trial {
        direction,
        client,
        server,
        unreported: None,
    })
}

/// How much longer than its sending time a job may take.
const BESIDE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_the_program_becomes_a_trial() {
        let trial = trial(Direction::Forward, "1000 64000 500000 7 0.0 0.0 0.0").unwrap();
        assert_eq!(trial.receiver().received, 1000);
        assert!((trial.receiver().goodput_mbps() - 1024.0).abs() < 0.1);
        assert_eq!(trial.receiver().rtt_us, None);
    }

    #[test]
    fn echo_has_round_trip_times() {
        let trial = trial(Direction::Echo, "10 0 0 7 3.5 3.0 9.0").unwrap();
        let rtt = trial.receiver().rtt_us.unwrap();
        assert!(rtt.p50 < rtt.avg && rtt.avg < rtt.p99);
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "1 2 3", "1 2 3 4 5 6 x", "1 2 3 4 5 6 7 8"] {
            assert!(trial(Direction::Echo, line).is_none(), "{line}");
        }
    }
}
