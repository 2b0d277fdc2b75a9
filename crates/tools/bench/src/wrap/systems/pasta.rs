//! pasta: a network namespace whose loopback interface has ports of the host's. pasta copies the
//! bytes of such connections with `splice`.

use std::path::Path;
use std::time::Duration;

use carina_namespaces::run_within;

use super::{Plain, Route, Started};
use crate::error::{Error, Result};
use crate::wrap::PASTA;
use crate::wrap::processes::{command, words};

/// Each client runs in a namespace of its own, which pasta makes for it.
pub(super) fn start(servers: &[Plain], _directory: &Path) -> Result<Started> {
    let mut started = Started::default();
    for server in servers {
        let mut route = Route::through(PASTA, server.program, server.port);
        route.launcher = launcher(server.port);
        started.routes.push(route);
    }
    if let Some(route) = started.routes.first() {
        let mut probe = command(&route.launcher);
        let output = run_within(probe.arg("true"), PASTA, LIMIT)?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            let last = error.lines().last().unwrap_or("it has printed nothing");
            return Err(Error::NoAnswer(format!("no namespace: {last}")));
        }
    }
    Ok(started)
}

fn launcher(port: u16) -> Vec<String> {
    let mut launcher = words([PASTA, "--foreground", "--stderr"]);
    if rustix::process::geteuid().is_root() {
        // As its default user, pasta cannot set up the namespace of root's process.
        launcher.extend(words(["--runas", "0:0"]));
    }
    // Only this port is forwarded, and only from the namespace to the host.
    let port = port.to_string();
    launcher.extend(words(["-t", "none", "-u", "none", "-U", "none"]));
    launcher.extend(words(["-T", &port, "--"]));
    launcher
}

/// How long pasta may take to run `true`.
const LIMIT: Duration = Duration::from_secs(10);
