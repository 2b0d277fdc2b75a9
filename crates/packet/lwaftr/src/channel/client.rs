//! The client of an AFTR's control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Answer, Request, Status};

/// A connection to a running AFTR.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// Why a running AFTR did not carry out a request, or was not reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The socket failed.
    #[error("the AFTR does not answer: {0}")]
    System(#[from] io::Error),
    /// The AFTR closed the connection before it answered.
    #[error("the AFTR closed the connection without an answer: its process has ended")]
    Ended,
    /// The line that came is not a valid answer.
    #[error("the AFTR sent an invalid answer: {0}")]
    Answer(#[from] serde_json::Error),
    /// The AFTR refused the request, for this reason.
    #[error("{0}")]
    Refused(String),
}

/// Longest wait for an answer: the AFTR may have to read a file with millions of softwires first.
const PATIENCE: Duration = Duration::from_secs(120);

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// No process listens there.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request, and blocks until its answer arrives, at most 120 s. Returns the value of
    /// the answer.
    ///
    /// # Errors
    /// No valid answer came, or the AFTR refused the request.
    pub fn ask(&mut self, request: &Request) -> Result<String, ClientError> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ClientError::Ended);
        }
        let answer: Answer = serde_json::from_str(&line)?;
        let value = answer.value.unwrap_or_default();
        match answer.status {
            Status::Ok => Ok(value),
            Status::Error => Err(ClientError::Refused(value)),
        }
    }
}
