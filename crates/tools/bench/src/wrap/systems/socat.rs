//! socat: a process for each connection, which copies bytes.

use std::path::Path;

use super::{Plain, Route, Started};
use crate::error::Result;
use crate::wrap::RELAY;
use crate::wrap::processes::{LOOPBACK, command, free_port, listening, words};

pub(super) fn start(servers: &[Plain], directory: &Path) -> Result<Started> {
    let mut started = Started::default();
    for server in servers {
        let port = free_port()?;
        let options = format!("bind={LOOPBACK},fork,reuseaddr,nodelay,backlog={BACKLOG}");
        let listen = format!("TCP-LISTEN:{port},{options}");
        let connect = format!("TCP:{LOOPBACK}:{},nodelay", server.port);
        let socat = command(&words([RELAY, &listen, &connect]));
        let name = format!("{RELAY}-{}", server.program.name());
        let process = listening(socat, directory, &name, port)?;
        started.processes.push(process);
        started
            .routes
            .push(Route::through(RELAY, server.program, port));
    }
    Ok(started)
}

/// Number of connections that may wait for socat.
const BACKLOG: u32 = 1024;
