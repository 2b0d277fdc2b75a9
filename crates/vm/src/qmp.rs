//! A small client of QEMU's machine protocol: one JSON object a line over a Unix socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Context, Error, Result};

/// A connection that has negotiated its capabilities. QEMU serves one at a time.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
}

/// What QEMU says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunState {
    /// Whether the guest's processors run.
    pub running: bool,
    /// QEMU's word for the state, such as `running`, `paused` or `shutdown`.
    pub status: String,
}

/// What it took to send a guest to another QEMU, as the sender counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// How long the guest stood still.
    pub downtime: Duration,
    /// How long it took in all.
    pub total: Duration,
}

impl Qmp {
    /// Connects, reads the greeting and leaves negotiation mode.
    ///
    /// # Errors
    ///
    /// When the socket cannot be connected to, or QEMU does not answer within `limit`: so it is
    /// while QEMU still waits for the node on its ivshmem socket.
    pub fn connect(path: &Path, limit: Duration) -> Result<Qmp> {
        let stream = carina_sys::connect_stream(path, limit).context("connect to", path)?;
        stream
            .set_read_timeout(Some(limit))
            .context("set the time limit of", path)?;
        stream
            .set_write_timeout(Some(limit))
            .context("set the time limit of", path)?;
        let mut qmp = Qmp {
            reader: BufReader::new(stream),
        };
        let greeting = qmp.receive()?;
        if greeting.get("QMP").is_none() {
            return Err(Error::Qmp(format!(
                "no greeting on {}: {greeting}",
                path.display()
            )));
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its `return` value; events in between are dropped.
    ///
    /// # Errors
    ///
    /// When QEMU refuses the command, closes the connection, or is silent for too long.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        let failed = |error: std::io::Error| Error::Qmp(format!("{command}: {error}"));
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .map_err(failed)?;
        loop {
            let mut answer = self.receive()?;
            if let Some(error) = answer.get("error") {
                let reason = error
                    .get("desc")
                    .and_then(Value::as_str)
                    .unwrap_or("no reason given");
                return Err(Error::Qmp(format!("{command}: {reason}")));
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    /// Asks for the state of the guest's processors.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`].
    pub fn status(&mut self) -> Result<RunState> {
        let value = self.execute("query-status", json!({}))?;
        let running = value.get("running").and_then(Value::as_bool);
        let status = value.get("status").and_then(Value::as_str);
        match (running, status) {
            (Some(running), Some(status)) => Ok(RunState {
                running,
                status: status.to_owned(),
            }),
            _ => Err(Error::Qmp(format!("query-status: not understood: {value}"))),
        }
    }

    /// The threads of the host that are the guest's processors.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`].
    pub fn processor_threads(&mut self) -> Result<Vec<i32>> {
        let value = self.execute("query-cpus-fast", json!({}))?;
        let threads = value.as_array().map(|cpus| {
            let ids = cpus.iter().map(|cpu| cpu.get("thread-id")?.as_i64());
            ids.map(|id| i32::try_from(id?).ok()).collect()
        });
        threads
            .flatten()
            .ok_or_else(|| Error::Qmp(format!("query-cpus-fast: not understood: {value}")))
    }

    /// Begins to send the guest to the QEMU that waits at a socket.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`].
    pub fn migrate(&mut self, socket: &Path) -> Result<()> {
        let uri = format!("unix:{}", socket.display());
        self.execute("migrate", json!({ "uri": uri })).map(drop)
    }

    /// How far that has come; `None` while it goes on.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`], and when the guest cannot be sent.
    pub fn migration(&mut self) -> Result<Option<Migration>> {
        let value = self.execute("query-migrate", json!({}))?;
        let ms = |field: &str| {
            let ms = value.get(field).and_then(Value::as_u64);
            Duration::from_millis(ms.unwrap_or_default())
        };
        match value.get("status").and_then(Value::as_str) {
            Some("completed") => Ok(Some(Migration {
                downtime: ms("downtime"),
                total: ms("total-time"),
            })),
            Some("failed" | "cancelled" | "cancelling") | None => {
                Err(Error::Qmp(format!("the guest was not sent: {value}")))
            }
            Some(_) => Ok(None),
        }
    }

    /// Resets the machine, as its reset button would.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`].
    pub fn reset(&mut self) -> Result<()> {
        self.execute("system_reset", json!({})).map(drop)
    }

    /// Presses the power button; a guest without ACPI ignores it.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`].
    pub fn power_button(&mut self) -> Result<()> {
        self.execute("system_powerdown", json!({})).map(drop)
    }

    /// Ends QEMU at once.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`].
    pub fn quit(&mut self) -> Result<()> {
        self.execute("quit", json!({})).map(drop)
    }

    fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        let length = (&mut self.reader)
            .take(LINE_BYTES_MAX)
            .read_line(&mut line)
            .map_err(|error| Error::Qmp(format!("QEMU does not answer: {error}")))?;
        if length == 0 {
            return Err(Error::Qmp("QEMU has closed the connection".into()));
        }
        serde_json::from_str(&line)
            .map_err(|error| Error::Qmp(format!("not understood ({error}): {line:.200}")))
    }
}

/// Longer than any answer to the commands used here.
const LINE_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Serves one connection with prepared lines: the greeting, then one or more per request.
    fn qemu(answers: &'static [&'static str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                stream.write_all(answer.as_bytes()).unwrap();
                if requests.next().is_none() {
                    return;
                }
            }
        });
        (directory, path)
    }

    const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";
    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn events_between_request_and_answer_are_passed_over() {
        let (_directory, path) = qemu(&[
            GREETING,
            "{\"return\": {}}\r\n",
            concat!(
                "{\"event\": \"RESUME\"}\r\n",
                "{\"return\": {\"running\": true, \"status\": \"running\"}}\n",
            ),
        ]);
        let state = Qmp::connect(&path, LIMIT).unwrap().status().unwrap();
        assert_eq!(
            state,
            RunState {
                running: true,
                status: "running".into()
            }
        );
    }

    #[test]
    fn threads_of_the_processors_are_listed() {
        let (_directory, path) = qemu(&[
            GREETING,
            "{\"return\": {}}\n",
            "{\"return\": [{\"cpu-index\": 0, \"thread-id\": 71}, {\"thread-id\": 72}]}\n",
            "{\"return\": [{\"cpu-index\": 0}]}\n",
        ]);
        let mut qmp = Qmp::connect(&path, LIMIT).unwrap();
        assert_eq!(qmp.processor_threads().unwrap(), [71, 72]);
        let error = qmp.processor_threads().unwrap_err().to_string();
        assert!(error.contains("query-cpus-fast: not understood"), "{error}");
    }

    #[test]
    fn migration_ends_with_its_times_or_a_reason() {
        let (_directory, path) = qemu(&[
            GREETING,
            "{\"return\": {}}\n",
            "{\"return\": {}}\n",
            "{\"return\": {\"status\": \"active\"}}\n",
            concat!(
                "{\"return\": {\"status\": \"completed\", \"downtime\": 12, ",
                "\"total-time\": 345}}\n",
            ),
            "{\"return\": {\"status\": \"failed\", \"error-desc\": \"no room\"}}\n",
        ]);
        let mut qmp = Qmp::connect(&path, LIMIT).unwrap();
        qmp.migrate(Path::new("/m")).unwrap();
        assert_eq!(qmp.migration().unwrap(), None);
        let done = Migration {
            downtime: Duration::from_millis(12),
            total: Duration::from_millis(345),
        };
        assert_eq!(qmp.migration().unwrap(), Some(done));
        let error = qmp.migration().unwrap_err().to_string();
        assert!(error.contains("no room"), "{error}");
    }

    #[test]
    fn refusal_carries_the_reason_that_qemu_gives() {
        let (_directory, path) = qemu(&[
            GREETING,
            "{\"return\": {}}\n",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such thing\"}}\n",
        ]);
        let error = Qmp::connect(&path, LIMIT).unwrap().reset().unwrap_err();
        assert_eq!(error.to_string(), "QMP: system_reset: no such thing");
    }

    #[test]
    fn foreign_or_silent_server_is_an_error() {
        let (_directory, path) = qemu(&["HTTP/1.1 400 Bad Request\r\n"]);
        assert!(Qmp::connect(&path, LIMIT).is_err());
        let (_directory, path) = qemu(&["{\"hello\": 1}\n"]);
        assert!(Qmp::connect(&path, LIMIT).is_err());
        let (_directory, path) = qemu(&["{\"QMP\": "]);
        assert!(Qmp::connect(&path, Duration::from_millis(50)).is_err());
    }
}
