//! `ssh -L` to an sshd of this bench, with keys of its own.

use std::path::Path;
use std::process::Command;

use super::{Plain, Route, Started};
use crate::error::Result;
use crate::wrap::processes::{LOOPBACK, command, free_port, listening};
use crate::wrap::{SSH, sshd};

pub(super) fn start(servers: &[Plain], directory: &Path) -> Result<Started> {
    let of_sshd = free_port()?;
    let listens = format!("Port {of_sshd}\nListenAddress {LOOPBACK}\n");
    sshd::make_files(directory, &listens)?;
    let server = command(&sshd::command(directory));
    let mut started = Started::default();
    let server = listening(server, directory, "sshd", of_sshd)?;
    let mut client = Command::new("ssh");
    client.args(["-N", "-F", "/dev/null", "-p", &of_sshd.to_string()]);
    for option in [
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "ExitOnForwardFailure=yes",
    ] {
        client.args(["-o", option]);
    }
    client.arg("-i").arg(sshd::key(directory));
    for server in servers {
        let port = free_port()?;
        let forward = format!("{LOOPBACK}:{port}:{LOOPBACK}:{}", server.port);
        client.args(["-L", &forward]);
        started
            .routes
            .push(Route::through(SSH, server.program, port));
    }
    client.arg(LOOPBACK);
    if let Some(last) = started.routes.last() {
        // ssh opens the ports in the order of its options.
        let client = listening(client, directory, SSH, last.port)?;
        started.processes.push(client);
    }
    started.processes.push(server);
    Ok(started)
}
