//! The reader's end of a trace.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::request::TraceRequest;
use super::{NO, OK, socket_of};

/// A capture file that grows as frames pass the links of a graph in another process. Dropping this
/// value ends the trace.
#[derive(Debug)]
pub struct TraceStream {
    socket: UnixStream,
}

/// Why no frames of a graph's links can be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// No process is running the graph.
    #[error("no process runs this graph: {0}")]
    NotRunning(io::Error),
    /// The process of the graph refused the request, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The answer is not valid.
    #[error("the process that runs the graph sent an answer that this version does not understand")]
    Unknown,
    /// The connection failed.
    #[error("sending the request to the process that runs the graph: {0}")]
    System(#[from] io::Error),
}

/// Whether a process is running the graph with this counter file, and accepts requests for traces.
#[must_use]
pub fn is_served(counters: &Path) -> bool {
    carina_sys::connect_stream(&socket_of(counters), CONNECT_TIME).is_ok()
}

impl TraceStream {
    /// Begins a trace of the graph with this counter file.
    ///
    /// # Errors
    /// The graph is not running, refuses the request, or gives no valid answer.
    pub fn open(counters: &Path, request: &TraceRequest) -> Result<TraceStream, TraceError> {
        let socket = carina_sys::connect_stream(&socket_of(counters), CONNECT_TIME);
        let mut socket = socket.map_err(TraceError::NotRunning)?;
        socket.set_read_timeout(Some(ANSWER_TIME))?;
        socket.set_write_timeout(Some(ANSWER_TIME))?;
        socket.write_all(format!("{request}\n").as_bytes())?;
        let begin = Instant::now();
        let mut line = Vec::new();
        // Reads byte by byte, because the file follows the line.
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            let is_long = line.len() > LINE_BYTES_MAX || begin.elapsed() > ANSWER_TIME;
            if is_long || socket.read(&mut byte)? == 0 {
                return Err(TraceError::Unknown);
            }
            line.extend(byte);
        }
        if line == OK {
            return Ok(TraceStream { socket });
        }
        let text = String::from_utf8_lossy(&line);
        let why = text
            .trim_end()
            .strip_prefix(NO)
            .ok_or(TraceError::Unknown)?;
        Err(TraceError::Refused(why.to_owned()))
    }

    /// Reads the next bytes of the file into `bytes`; returns their number, 0 if none came within
    /// `within`. `None` at the end of the file.
    ///
    /// # Errors
    /// The connection failed.
    pub fn read(&mut self, bytes: &mut [u8], within: Duration) -> io::Result<Option<usize>> {
        // A timeout of 0 is not a valid argument, so the shortest is 1 ms.
        self.socket
            .set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        match self.socket.read(bytes) {
            Ok(0) => Ok(None),
            Ok(read) => Ok(Some(read)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(Some(0)),
                _ => Err(error),
            },
        }
    }

    /// Asks the other side to end the trace. Frames on their way still arrive, followed by the
    /// number of missed frames.
    ///
    /// # Errors
    /// The connection failed.
    pub fn finish(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }
}

const CONNECT_TIME: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(90);
/// Length of the longest answer in bytes; it may list all links of a graph.
const LINE_BYTES_MAX: usize = 1 << 20;
