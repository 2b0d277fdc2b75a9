//! Reads the stream of a command's output that an agent or a VNO sends, line by line.

use std::ops::ControlFlow;

use carina_api::ErrorBody;
use carina_api::output::{Sink, Stream};

use crate::report::{ExecLine, ExecReply};

/// Why a stream of a command's output ends without an exit status.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The host has ended the command, or reports an error.
    #[error("{0}")]
    Refused(ErrorBody),
    /// The stream has ended without an exit status or error.
    #[error("the connection ended before the exit status of the command arrived")]
    BrokenOff,
    /// A line of the stream is not an [`ExecLine`].
    #[error("a line of the command's output cannot be decoded: {0}")]
    Line(String),
    /// The agent or the VNO is of an earlier version, which does not stream.
    #[error(
        "{dropped} more bytes of output are missing: the agent or the VNO runs an earlier \
         version, which sends {max_mib} MiB at most", max_mib = ExecReply::STDOUT_MAX >> 20
    )]
    Cut {
        /// Number of bytes of output that are missing.
        dropped: u64,
        /// The exit status of the command.
        status: i32,
    },
}

/// Parses the lines of such a stream, and hands the pieces of output to a sink.
pub struct ExecLines<'a> {
    sink: &'a mut dyn Sink,
    end: Option<Result<Option<i32>, StreamError>>,
}

impl<'a> ExecLines<'a> {
    /// Creates a reader that hands the output to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> ExecLines<'a> {
        ExecLines { sink, end: None }
    }

    /// Processes the next line of the stream. Breaks after the last line, after an invalid line, or
    /// if the sink refuses output.
    pub fn take(&mut self, line: &[u8]) -> ControlFlow<()> {
        match serde_json::from_slice(line) {
            Ok(ExecLine::Stdout(bytes)) => self.piece(Stream::Stdout, &bytes),
            Ok(ExecLine::Stderr(bytes)) => self.piece(Stream::Stderr, &bytes),
            Ok(ExecLine::Status(status)) => self.finish(Ok(Some(status))),
            Ok(ExecLine::Error(error)) => self.finish(Err(StreamError::Refused(error))),
            Err(error) => self.finish(Err(StreamError::Line(error.to_string()))),
        }
    }

    /// Processes an answer that is not a stream but has all output, from an agent of an earlier
    /// version. Returns the exit status; `None` if the sink takes no more output.
    pub fn whole(mut self, reply: ExecReply) -> Result<Option<i32>, StreamError> {
        for (stream, bytes) in [
            (Stream::Stdout, &reply.stdout),
            (Stream::Stderr, &reply.stderr),
        ] {
            if !bytes.is_empty() && self.piece(stream, bytes).is_break() {
                return Ok(None);
            }
        }
        match reply {
            ExecReply {
                dropped: 0, status, ..
            } => Ok(Some(status)),
            ExecReply {
                dropped, status, ..
            } => Err(StreamError::Cut { dropped, status }),
        }
    }

    /// The result once the stream has ended: the command's exit status; `None` if the sink refused
    /// output.
    ///
    /// # Errors
    /// [`StreamError`]: no exit status was received.
    pub fn end(self) -> Result<Option<i32>, StreamError> {
        self.end.unwrap_or(Err(StreamError::BrokenOff))
    }

    fn piece(&mut self, stream: Stream, bytes: &[u8]) -> ControlFlow<()> {
        if self.sink.take(stream, bytes, &|| false).is_break() {
            return self.finish(Ok(None));
        }
        ControlFlow::Continue(())
    }

    fn finish(&mut self, end: Result<Option<i32>, StreamError>) -> ControlFlow<()> {
        self.end = Some(end);
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], goes: bool) -> (Result<Option<i32>, StreamError>, Vec<u8>) {
        let mut taken = Vec::new();
        let mut sink = |_: Stream, piece: &[u8]| {
            taken.extend_from_slice(piece);
            if goes {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let mut stream = ExecLines::new(&mut sink);
        for line in lines {
            if stream.take(line.as_bytes()).is_break() {
                break;
            }
        }
        let end = stream.end();
        (end, taken)
    }

    #[test]
    fn end_of_a_stream_is_its_last_line() {
        let piece = r#"{"stdout":"Zm9v"}"#;
        let read_all = |last: &str| read(&[piece, r#"{"stderr":"Zg=="}"#, last], false);
        assert_eq!(read_all(r#"{"status":3}"#), (Ok(Some(3)), b"foof".to_vec()));
        let refused = read_all(r#"{"error":{"code":"timed-out","message":"late"}}"#).0;
        assert!(matches!(refused, Err(StreamError::Refused(_))));
        assert!(matches!(read_all("[]").0, Err(StreamError::Line(_))));
        assert_eq!(read(&[piece], false).0, Err(StreamError::BrokenOff));
        assert_eq!(read(&[piece, piece], true), (Ok(None), b"foo".to_vec()));
    }
}
