//! Writes a node's log to standard error. The node never waits for the reader of its log, and does
//! not end when the reader has ended.
//!
//! ```text
//!   threads of the node --lines--> queue (bounded) --writer thread--> standard error
//! ```
//!
//! With a full file system, a pipe without reader or a closed terminal every write fails. With a
//! pipe whose reader has stopped, a write does not return. Neither affects the node. Lines that
//! find the queue full are dropped and counted, and the count is written once there is room.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// The end of the queue into which the node's threads write lines.
#[derive(Debug, Clone)]
pub(crate) struct LogWriter {
    lines: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// The thread that writes to standard error. When this value is dropped, the thread has
/// [`LAST_LINES`] to write the lines that are still in the queue.
#[derive(Debug)]
pub(crate) struct LogThread {
    lines: Option<SyncSender<Vec<u8>>>,
    thread: JoinHandle<()>,
}

/// Starts the thread that writes to `output`.
///
/// # Errors
/// The system cannot start a thread.
pub(crate) fn start(output: impl Write + Send + 'static) -> io::Result<(LogWriter, LogThread)> {
    let (lines, queue) = sync_channel(LINES_MAX);
    let dropped = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&dropped);
    let thread = std::thread::Builder::new()
        .name("log".into())
        .spawn(move || write_all(&queue, &counted, output))?;
    let last = LogThread {
        lines: Some(lines.clone()),
        thread,
    };
    Ok((LogWriter { lines, dropped }, last))
}

/// Writes lines until [`END`] arrives. Pauses after each write, so that a thread that logs many
/// lines does not wake this one for every line.
fn write_all(queue: &Receiver<Vec<u8>>, dropped: &AtomicU64, mut output: impl Write) {
    let mut is_ended = false;
    while let Ok(mut lines) = queue.recv() {
        is_ended |= lines == END;
        while lines.len() < WRITE_BYTES {
            match queue.try_recv() {
                Ok(line) if line == END => is_ended = true,
                Ok(line) => lines.extend(line),
                Err(_) => break,
            }
        }
        // Lines that cannot be written are lost; there is no other place to report them.
        let _ = output.write_all(&lines);
        match dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            count => {
                let _ = writeln!(output, "carina: {count} lines of the log were not written");
            }
        }
        if is_ended {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Each call is one line, because the formatter of `tracing` writes an event in one call.
impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line.to_vec()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        self.clone()
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        let deadline = Instant::now() + LAST_LINES;
        let Some(lines) = self.lines.take() else {
            return;
        };
        let mut is_told = false;
        while !self.thread.is_finished() && Instant::now() < deadline {
            is_told = is_told || lines.try_send(END.to_vec()).is_ok();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Pause after a write. A line waits at most so long.
const PAUSE: Duration = Duration::from_millis(1);
/// Lines up to this number of bytes are written at once.
const WRITE_BYTES: usize = 16 << 10;
/// Number of lines that may wait in the queue.
const LINES_MAX: usize = 4096;
/// How long writing the last lines may take when the node ends.
const LAST_LINES: Duration = Duration::from_millis(500);
/// Marks the end of the log in the queue. No line is empty.
const END: &[u8] = b"";

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// An output whose writes wait until the test lets them through.
    struct Held {
        let_through: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.let_through.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// An output whose writes fail.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_stopped_reader_leaves_no_room_for_are_counted() {
        let (go, let_through) = channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let output = Held {
            let_through,
            written: Arc::clone(&written),
        };
        let (mut log, last) = start(output).unwrap();
        for number in 0..2 * LINES_MAX {
            log.write_all(format!("line {number}\n").as_bytes())
                .unwrap();
        }
        assert!(log.dropped.load(Ordering::Relaxed) > 0);
        drop(go);
        drop(last);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("line 0\n"), "{text}");
        assert!(text.contains("lines of the log were not written"), "{text}");
    }

    #[test]
    fn output_that_fails_ends_nothing() {
        let (mut log, last) = start(Full).unwrap();
        for _ in 0..10 {
            log.write_all(b"a line\n").unwrap();
        }
        assert!(!last.thread.is_finished());
        drop(last);
    }
}
