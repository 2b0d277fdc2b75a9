//! The systems, one module for each kind: what joins a client with its server.

mod carina;
mod pasta;
mod slirp4netns;
mod socat;
mod ssh;

pub(super) use self::carina::Carina;

use std::path::Path;

use carina_namespaces::ChildProcess;

use super::processes::LOOPBACK;
use super::programs::Program;
use super::{PASTA, RELAY, SLIRP, SSH, TCP};
use crate::error::Result;

/// How the client of one program reaches the server in one system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) system: &'static str,
    pub(super) program: Program,
    /// Words in front of the client's command.
    pub(super) launcher: Vec<String>,
    /// Name or address of the server for the client.
    pub(super) host: String,
    /// Port of the server for the client.
    pub(super) port: u16,
    /// Port of the HTTP proxy through which the client connects, if it does.
    pub(super) proxy: Option<u16>,
}

/// A server on the loopback interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    pub(super) program: Program,
    pub(super) port: u16,
}

/// A system that was started: its routes, and its processes.
#[derive(Default)]
pub(super) struct Started {
    pub(super) routes: Vec<Route>,
    pub(super) processes: Vec<ChildProcess>,
}

impl Route {
    /// A route through a port of the loopback interface.
    fn through(system: &'static str, program: Program, port: u16) -> Route {
        Route {
            system,
            program,
            launcher: Vec::new(),
            host: LOOPBACK.to_owned(),
            port,
            proxy: None,
        }
    }
}

/// The routes without any relay.
pub(super) fn tcp(servers: &[Plain]) -> Vec<Route> {
    let route = |plain: &Plain| Route::through(TCP, plain.program, plain.port);
    servers.iter().map(route).collect()
}

/// Starts a system of another project. `directory` is for its files.
type Start = fn(servers: &[Plain], directory: &Path) -> Result<Started>;

/// The systems of other projects: name, the programs that each needs, and how it starts.
pub(super) const OTHERS: [(&str, &[&str], Start); 4] = [
    (RELAY, &["socat"], socat::start),
    (SSH, &["sshd", "ssh", "ssh-keygen"], ssh::start),
    (PASTA, &["pasta"], pasta::start),
    (
        SLIRP,
        &["slirp4netns", "unshare", "nsenter"],
        slirp4netns::start,
    ),
];
