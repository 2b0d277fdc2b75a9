//! The systems of Carina: `wrap`, `expose` with `connect`, and `proxy`.

use std::path::Path;

use carina_lab::{Network, TestNode};
use carina_measure::results::OURS;
use carina_namespaces::{ChildProcess, run_within};

use super::{Plain, Route, Started};
use crate::error::{Error, Result};
use crate::peer::app_name;
use crate::wrap::processes::{LOOPBACK, START, command, free_port, listening, spawn, words};
use crate::wrap::programs::Program;
use crate::wrap::{CONNECT, PROXY};

/// A node, and the program that uses it.
pub(in crate::wrap) struct Carina {
    pub(in crate::wrap) node: TestNode,
    /// Path of this program.
    pub(in crate::wrap) program: String,
}

impl Carina {
    pub(in crate::wrap) fn start(program: String) -> Result<Carina> {
        let node = TestNode::start("wrap", Network::Shared, None)?;
        Ok(Carina { node, program })
    }

    /// Words of a command of `carina` with this node.
    fn words(&self, rest: &[&str]) -> Vec<String> {
        let run = self.node.path().to_string_lossy();
        let first: [&str; 3] = [&self.program, "--run", &run];
        words(first.into_iter().chain(rest.iter().copied()))
    }

    /// Starts a server under `carina wrap`, and waits until it accepts flows.
    pub(in crate::wrap) fn wrapped(
        &mut self,
        program: Program,
        server: Vec<String>,
        directory: &Path,
    ) -> Result<(Route, ChildProcess)> {
        let port = program.wrapped_port();
        let mut all = self.words(&["wrap", "--as", HOST]);
        if program == Program::Tcp {
            all.extend(words(SUPERVISED));
        }
        all.extend(server);
        let name = format!("wrapped-{}", program.name());
        let process = spawn(command(&all), directory, &name)?;
        let registered = format!("{HOST}:{port}");
        self.node.wait_for_name(&app_name(&registered)?, START)?;
        self.wait_for_listen(&registered)?;
        let mut launcher = vec!["wrap".to_owned()];
        let mut host = format!("{HOST}.dif.internal");
        if program == Program::Tcp {
            // The program does not look names up.
            let rule = format!("{ADDRESS}:{port} -> dif as {registered}");
            launcher.extend(["--rule".to_owned(), rule]);
            launcher.extend(words(SUPERVISED));
            host = ADDRESS.to_owned();
        }
        let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
        let route = Route {
            system: OURS,
            program,
            launcher: self.words(&launcher),
            host,
            port,
            proxy: None,
        };
        Ok((route, process))
    }

    /// Waits until flows to a registered name are accepted: a server registers the name by `bind`,
    /// and accepts flows after `listen`.
    fn wait_for_listen(&self, name: &str) -> Result<()> {
        let deadline = std::time::Instant::now() + START;
        loop {
            let mut probe = command(&self.words(&["connect", "--stdio", name]));
            let output = run_within(&mut probe, "carina connect", START)?;
            if output.status.success() {
                return Ok(());
            }
            if std::time::Instant::now() > deadline {
                let error = String::from_utf8_lossy(&output.stderr);
                return Err(Error::NoAnswer(format!("{name} does not listen: {error}")));
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Starts `expose` and `connect` for each server, and a proxy for the one whose client can use
    /// one.
    pub(in crate::wrap) fn gateways(
        &mut self,
        servers: &[Plain],
        directory: &Path,
    ) -> Result<Started> {
        let mut started = Started::default();
        for plain in servers {
            let label = plain.program.name();
            let server = format!("{LOOPBACK}:{}", plain.port);
            let name = format!("plain-{label}");
            let expose = self.words(&["expose", "tcp", &server, "--as", &name]);
            let expose = spawn(command(&expose), directory, &format!("expose-{label}"))?;
            started.processes.push(expose);
            self.node.wait_for_name(&app_name(&name)?, START)?;
            let port = free_port()?;
            let listen = format!("{LOOPBACK}:{port}");
            let connect = command(&self.words(&["connect", &name, "--tcp", &listen]));
            let log = format!("{CONNECT}-{label}");
            let connect = listening(connect, directory, &log, port)?;
            started.processes.push(connect);
            started
                .routes
                .push(Route::through(CONNECT, plain.program, port));
            if plain.program == Program::Python {
                let port = free_port()?;
                let listen = format!("{LOOPBACK}:{port}");
                let rule = format!("{server} -> kernel");
                let proxy = self.words(&[PROXY, "--http", &listen, "--rule", &rule]);
                let proxy = listening(command(&proxy), directory, PROXY, port)?;
                started.processes.push(proxy);
                let mut route = Route::through(PROXY, plain.program, plain.port);
                route.proxy = Some(port);
                started.routes.push(route);
            }
        }
        Ok(started)
    }
}

/// Options for the static program, also where this program was built as a dynamic one.
const SUPERVISED: [&str; 2] = ["--kind", "seccomp"];

/// The name of the wrapped servers.
const HOST: &str = "bench";

/// An address that stands for the wrapped server of a program that does not look names up. It is
/// set aside for documentation (RFC 5737).
const ADDRESS: &str = "192.0.2.1";
