//! The side of who asks.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Answer, Request, Status};

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The socket.
    #[error("the AFTR does not answer: {0}")]
    System(#[from] io::Error),
    /// The process has ended.
    #[error("the AFTR has ended")]
    Ended,
    /// What came is no answer.
    #[error("the AFTR sends an invalid answer: {0}")]
    Answer(#[from] serde_json::Error),
    /// It was not done.
    #[error("{0}")]
    Refused(String),
}

/// How long an answer may take: a file with millions of softwires is read meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// There is no listener.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client {
            stream: BufReader::new(stream),
        })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// There is no answer, or it says why nothing was done.
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
