//! slirp4netns: a network namespace with a TCP stack in user space behind a tap.

use std::path::Path;

use super::{Plain, Route, Started};
use crate::error::Result;
use crate::wrap::SLIRP;
use crate::wrap::processes::{command, spawn, until, words};

/// One namespace for all clients. A process that sleeps holds it.
pub(super) fn start(servers: &[Plain], directory: &Path) -> Result<Started> {
    let holder = command(&words([
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        HOLDS,
    ]));
    let mut holder = spawn(holder, directory, "holder")?;
    let pid = holder.id().to_string();
    let own = std::fs::read_link("/proc/self/ns/net").ok();
    let has_left = || std::fs::read_link(format!("/proc/{pid}/ns/net")).ok() != own;
    until(&mut holder, directory, "holder", "no namespace", has_left)?;
    let daemon = command(&words([SLIRP, "--configure", "--mtu=65520", &pid, "tap0"]));
    let mut daemon = spawn(daemon, directory, SLIRP)?;
    // The default route is the last that is configured.
    let is_configured = || {
        let routes = std::fs::read_to_string(format!("/proc/{pid}/net/route"));
        routes.is_ok_and(|routes| routes.contains("\t00000000\t"))
    };
    until(&mut daemon, directory, SLIRP, "no route", is_configured)?;
    let mut started = Started::default();
    for server in servers {
        let mut route = Route::through(SLIRP, server.program, server.port);
        route.launcher = words([
            "nsenter",
            "--preserve-credentials",
            "--user",
            "--net",
            "--target",
            &pid,
        ]);
        route.host = GATEWAY.to_owned();
        started.routes.push(route);
    }
    started.processes.extend([daemon, holder]);
    Ok(started)
}

/// Holds the namespace. The side that closes a connection keeps its port for a minute, so that case
/// `connections` would use up the usual range of ports within some runs.
const HOLDS: &str = "echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range; exec sleep infinity";
/// Address at which the namespace reaches the host's loopback interface.
const GATEWAY: &str = "10.0.2.2";
