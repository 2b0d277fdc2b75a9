//! Runs this program as another process, and follows its output.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use carina_namespaces::Namespace;
use carina_sys::end_with_parent;

use crate::error::{Attempt, Error, Result};

/// Another process of this program. It is killed when this value is dropped, or when the thread
/// that started it ends.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    /// Lines of output that no caller has waited for.
    other_lines: Vec<String>,
    what: String,
}

impl Program {
    /// Starts the program with the arguments `words`. `run` is its run directory.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn start(run: &Path, words: &[&str]) -> Result<Program> {
        Program::start_in(None, run, words)
    }

    /// Like [`Program::start`], in a network namespace if one is given.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn start_in(
        namespace: Option<&Namespace>,
        run: &Path,
        words: &[&str],
    ) -> Result<Program> {
        let what = format!("carina {}", words.join(" "));
        let own = std::env::current_exe().attempt("finding this program")?;
        let mut command = match namespace {
            Some(namespace) => namespace.command(own),
            None => Command::new(own),
        };
        command.arg("--run").arg(run).args(words);
        let mut child = end_with_parent(&mut command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .attempt(format!("starting {what}"))?;
        let (line, lines) = channel();
        if let Some(errors) = child.stderr.take() {
            // This thread ends with the process.
            std::thread::spawn(move || {
                for text in BufReader::new(errors).lines().map_while(|text| text.ok()) {
                    if line.send(text).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Program {
            child,
            lines,
            other_lines: Vec::new(),
            what,
        })
    }

    /// Process ID of the program.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a further line of output that contains `part`.
    ///
    /// # Errors
    /// There is no such line within `limit`, or the process has ended.
    pub(crate) fn wait_for(&mut self, part: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(part) => return Ok(()),
                Ok(line) => {
                    self.other_lines.push(line);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => "has not said",
                Err(RecvTimeoutError::Disconnected) => "has ended before it said",
            };
            let what = &self.what;
            let error = Error::NoAnswer(format!("{what} {ended} {part:?}"));
            return Err(error.with(self.other_lines.join("\n")));
        }
    }

    /// Kills the process as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends the process as Ctrl-C does, and returns its standard output.
    ///
    /// # Errors
    /// The process ends with an error, or not within [`END`].
    pub(crate) fn end(mut self) -> Result<String> {
        let process = carina_namespaces::Process::of_child(&self.child)?;
        process.interrupt();
        let mut output = self.child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            // What was read before an error is kept.
            let _ = output
                .as_mut()
                .map(|output| output.read_to_string(&mut text));
            text
        });
        let deadline = Instant::now() + END;
        let ending = format!("ending {}", self.what);
        loop {
            match self.child.try_wait().attempt(ending.as_str())? {
                Some(status) if status.success() => return Ok(reader.join().unwrap_or_default()),
                Some(status) => {
                    let error = Error::NoAnswer(format!("{}: {status}", self.what));
                    return Err(error.with(self.lines.try_iter().collect::<Vec<_>>().join("\n")));
                }
                None if Instant::now() > deadline => {
                    return Err(Error::NoAnswer(format!("{} goes on", self.what)));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How long the process may take to end.
const END: Duration = Duration::from_secs(30);
