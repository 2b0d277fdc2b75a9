//! A small client of QEMU's machine protocol: one JSON object per line over a Unix socket.
//!
//! Each request has an identifier, so that the late answer to a request that was given up is not
//! mistaken for the answer to the next request. Events from QEMU are kept until they are asked for.

mod requests;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use requests::{Migration, RunState};

use crate::error::{Context, Error, Result};

/// A connection that has negotiated its capabilities. On each of its monitors QEMU serves one
/// connection at a time, and sends its events to all connections.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    limit: Duration,
    last_id: u64,
    /// The received part of a line that is not complete yet.
    line: Vec<u8>,
    events: VecDeque<Event>,
    events_dropped: u64,
}

/// An event that QEMU reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// QEMU's name of the event, such as `DEVICE_DELETED` or `SHUTDOWN`.
    pub name: String,
    /// Data of the event; `null` if it has none.
    pub data: Value,
}

impl Qmp {
    /// Connects, reads the greeting and leaves negotiation mode. `limit` is also the time limit of
    /// each later request.
    ///
    /// # Errors
    ///
    /// The socket cannot be connected to, or QEMU does not answer within `limit`, for instance
    /// because it still waits for the node on its ivshmem socket.
    pub fn connect(path: &Path, limit: Duration) -> Result<Qmp> {
        let stream = carina_sys::connect_stream(path, limit).context("connect to", path)?;
        stream
            .set_write_timeout(Some(limit))
            .context("set the time limit of", path)?;
        let mut qmp = Qmp {
            reader: BufReader::new(stream),
            limit,
            last_id: 0,
            line: Vec::new(),
            events: VecDeque::new(),
            events_dropped: 0,
        };
        let greeting = qmp.receive("greeting", Instant::now() + limit)?;
        if greeting.get("QMP").is_none() {
            return Err(Error::Qmp(format!(
                "no greeting on {}: {greeting}",
                path.display()
            )));
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its `return` value. Events that arrive in between are kept for
    /// [`Qmp::wait_event`].
    ///
    /// # Errors
    ///
    /// QEMU refuses the command, closes the connection, or does not answer in time. The error names
    /// the command.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        self.execute_with(command, arguments, &[])
    }

    /// Like [`Qmp::execute`], and sends open files for the command along.
    pub(crate) fn execute_with(
        &mut self,
        command: &str,
        arguments: Value,
        files: &[BorrowedFd<'_>],
    ) -> Result<Value> {
        let deadline = Instant::now() + self.limit;
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({ "execute": command, "arguments": arguments, "id": id });
        let line = format!("{request}\n");
        let sent = match files {
            [] => self.reader.get_mut().write_all(line.as_bytes()),
            files => carina_sys::send_with_fds(self.reader.get_ref(), line.as_bytes(), files),
        };
        sent.map_err(|error| Error::Qmp(format!("{command}: {error}")))?;
        loop {
            let mut answer = self.receive(command, deadline)?;
            match answer.get("id") {
                // If QEMU cannot parse a line, its refusal has no identifier.
                None => {}
                Some(value) if *value == json!(id) => {}
                Some(_) => continue,
            }
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
            self.keep_event(answer);
        }
    }

    /// Waits for an event with this name whose data satisfy the predicate. Returns its data. The
    /// event may have arrived before this call. Other events are kept.
    ///
    /// # Errors
    ///
    /// QEMU closes the connection, or no such event arrives within `limit`.
    pub fn wait_event(
        &mut self,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
        limit: Duration,
    ) -> Result<Value> {
        let deadline = Instant::now() + limit;
        let is_it = |event: &Event| event.name == name && wanted(&event.data);
        let mut looked_at = 0;
        loop {
            let found = self.events.iter().skip(looked_at).position(is_it);
            if let Some(event) = found.and_then(|at| self.events.remove(looked_at + at)) {
                return Ok(event.data);
            }
            let message = self.receive(&format!("event {name}"), deadline)?;
            self.keep_event(message);
            looked_at = self.events.len().saturating_sub(1);
        }
    }

    /// Removes and returns the events that have arrived and that no call has waited for, oldest
    /// first.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// Number of events that were discarded because 256 were kept already. The oldest is discarded
    /// first.
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped
    }

    fn keep_event(&mut self, mut message: Value) {
        let Some(name) = message.get("event").and_then(Value::as_str) else {
            return;
        };
        let name = name.to_owned();
        if self.events.len() == EVENTS_KEPT {
            self.events.pop_front();
            self.events_dropped += 1;
        }
        let data = message.get_mut("data").map(Value::take).unwrap_or_default();
        self.events.push_back(Event { name, data });
    }

    /// Reads the next line. A part of a line that arrived before the deadline is kept.
    fn receive(&mut self, awaited: &str, deadline: Instant) -> Result<Value> {
        let late = || Error::Qmp(format!("{awaited}: QEMU does not answer in time"));
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            let failed = |error: std::io::Error| Error::Qmp(format!("{awaited}: {error}"));
            let stream = self.reader.get_ref();
            stream.set_read_timeout(Some(left)).map_err(failed)?;
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len()) as u64;
            match (&mut self.reader)
                .take(room)
                .read_until(b'\n', &mut self.line)
            {
                Ok(_) => break,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Err(late());
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return Err(Error::Qmp(format!(
                "{awaited}: QEMU has closed the connection"
            )));
        }
        serde_json::from_slice(&line).map_err(|error| {
            let line = String::from_utf8_lossy(&line);
            Error::Qmp(format!(
                "{awaited}: cannot parse QEMU's answer ({error}): {line:.200}"
            ))
        })
    }
}

/// Longest line in bytes, longer than any answer to the commands used here.
const LINE_BYTES_MAX: usize = 4 << 20;
/// Largest number of events that are kept.
const EVENTS_KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Serves one connection with prepared lines: the greeting, then one or more lines for each
    /// request. ID in a line is replaced by the identifier of the request.
    fn qemu(answers: &'static [&'static str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut id = Value::Null;
            for answer in answers {
                let answer = answer.replace("ID", &id.to_string());
                stream.write_all(answer.as_bytes()).unwrap();
                let Some(request) = requests.next() else {
                    return;
                };
                id = serde_json::from_str::<Value>(&request.unwrap()).unwrap()["id"].take();
            }
        });
        (directory, path)
    }

    const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";
    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn events_between_request_and_answer_wait_for_someone() {
        let (_directory, path) = qemu(&[
            GREETING,
            "{\"id\": ID, \"return\": {}}\r\n",
            concat!(
                "{\"event\": \"RESUME\"}\r\n",
                "{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"nic1\"}}\n",
                "{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"nic0\"}}\n",
                "{\"id\": ID, \"return\": {\"running\": true, \"status\": \"running\"}}\n",
                "{\"event\": \"STOP\"}\r\n",
            ),
        ]);
        let mut qmp = Qmp::connect(&path, LIMIT).unwrap();
        let state = qmp.status().unwrap();
        assert_eq!(
            state,
            RunState {
                running: true,
                status: "running".into()
            }
        );
        let card = qmp.wait_event("DEVICE_DELETED", |data| data["device"] == "nic0", LIMIT);
        assert_eq!(card.unwrap(), json!({ "device": "nic0" }));
        assert_eq!(
            qmp.wait_event("STOP", |_| true, LIMIT).unwrap(),
            Value::Null
        );
        let rest: Vec<String> = qmp.take_events().into_iter().map(|e| e.name).collect();
        assert_eq!(rest, ["RESUME", "DEVICE_DELETED"]);
        let error = qmp.wait_event("STOP", |_| true, Duration::from_millis(50));
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "QMP: event STOP: QEMU does not answer in time");
    }

    #[test]
    fn late_answer_is_not_that_of_the_next_request() {
        let (_directory, path) = qemu(&[
            GREETING,
            "{\"id\": ID, \"return\": {}}\n",
            "{\"id\": 1, \"return\": {\"late\": true}}\n{\"id\": ID, \"return\": {\"now\": true}}\n",
        ]);
        let mut qmp = Qmp::connect(&path, LIMIT).unwrap();
        let answer = qmp.execute("query-something", json!({})).unwrap();
        assert_eq!(answer, json!({ "now": true }));
    }

    #[test]
    fn no_more_than_256_events_are_kept() {
        let event = "{\"event\": \"RESUME\"}\n".repeat(300);
        let answer: &'static str = format!("{event}{{\"id\": ID, \"return\": 7}}\n").leak();
        let answers = vec![GREETING, "{\"id\": ID, \"return\": {}}\n", answer];
        let (_directory, path) = qemu(answers.leak());
        let mut qmp = Qmp::connect(&path, LIMIT).unwrap();
        assert_eq!(qmp.execute("query-something", json!({})).unwrap(), json!(7));
        assert_eq!((qmp.take_events().len(), qmp.events_dropped()), (256, 44));
    }

    #[test]
    fn threads_of_the_processors_are_listed() {
        let (_directory, path) = qemu(&[
            GREETING,
            "{\"id\": ID, \"return\": {}}\n",
            "{\"id\": ID, \"return\": [{\"cpu-index\": 0, \"thread-id\": 71}, {\"thread-id\": 72}]}\n",
            "{\"id\": ID, \"return\": [{\"cpu-index\": 0}]}\n",
        ]);
        let mut qmp = Qmp::connect(&path, LIMIT).unwrap();
        assert_eq!(qmp.processor_threads().unwrap(), [71, 72]);
        let error = qmp.processor_threads().unwrap_err().to_string();
        assert!(
            error.contains("query-cpus-fast: cannot parse QEMU's answer"),
            "{error}"
        );
    }

    #[test]
    fn migration_ends_with_its_times_or_a_reason() {
        let (_directory, path) = qemu(&[
            GREETING,
            "{\"id\": ID, \"return\": {}}\n",
            "{\"id\": ID, \"return\": {}}\n",
            "{\"id\": ID, \"return\": {}}\n",
            "{\"id\": ID, \"return\": {\"status\": \"active\"}}\n",
            concat!(
                "{\"id\": ID, \"return\": {\"status\": \"completed\", \"downtime\": 12, ",
                "\"total-time\": 345}}\n",
            ),
            "{\"id\": ID, \"return\": {\"status\": \"failed\", \"error-desc\": \"no room\"}}\n",
        ]);
        let mut qmp = Qmp::connect(&path, LIMIT).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        qmp.migrate(near.as_fd()).unwrap();
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
            "{\"id\": ID, \"return\": {}}\n",
            "{\"id\": ID, \"error\": {\"class\": \"GenericError\", \"desc\": \"no such thing\"}}\n",
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
