//! Why a request of a client failed, and the server that it was for.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::ErrorBody;

/// Why a request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The client cannot connect to the socket: no node serves it.
    #[error("{}", connecting(server, source))]
    Connect {
        /// Which server was expected on the socket.
        server: Server,
        /// The socket to which the client tried to connect.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The connection failed while the client sent the request or read the answer.
    #[error("{}: the request failed: {source}", path.display())]
    Io {
        /// Path of the server's socket.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The server accepted the connection and did not answer in time.
    #[error(
        "the {} on {} has not answered `{request}` within {} s; it is stopped, stuck or very busy",
        server.name, path.display(), limit.as_secs_f32()
    )]
    Silent {
        /// Which server was expected on the socket.
        server: Server,
        /// Path of the socket whose server does not answer.
        path: PathBuf,
        /// Method and target of the request.
        request: String,
        /// How long the client waited for the answer.
        limit: Duration,
    },
    /// The answer is not valid HTTP, or its body is not the expected JSON.
    #[error("{}: cannot parse the answer: {what}", path.display())]
    Protocol {
        /// Path of the socket whose server sent the answer.
        path: PathBuf,
        /// What is wrong with the server's answer.
        what: String,
    },
    /// The server refused the request.
    #[error("{body}")]
    Refused {
        /// HTTP status of the response.
        status: u16,
        /// The error that the server sent.
        body: ErrorBody,
    },
}

/// What error messages of a client call the program that serves the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// What the program is called, such as `node`.
    pub name: &'static str,
    /// The command that starts the program.
    pub command: &'static str,
}

impl Server {
    /// The node: messages call it so and advise to start `carina node`.
    pub const NODE: Server = Server {
        name: "node",
        command: "carina node",
    };
}

/// Text of the error that no connection was made. `source` names the socket. There is no advice
/// after a timeout: a server runs then, but accepts no connections.
fn connecting(server: &Server, source: &io::Error) -> String {
    let Server { name, command } = server;
    match source.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "this user may not use the {name}: {source}; run the command as root or as the user \
             who has started the {name}"
        ),
        io::ErrorKind::TimedOut => format!("no {name} answers: {source}"),
        _ => format!(
            "no {name} answers: {source}; start one with `{command}`, or give the run directory of \
             one that runs (--run, CARINA_RUN)"
        ),
    }
}
