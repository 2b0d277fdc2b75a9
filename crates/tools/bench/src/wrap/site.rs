//! The node, the two servers, and what stands between them and a client.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carina_lab::{Network, TestNode};
use carina_measure::results::{Metric, OURS};
use carina_sys::end_with_parent;

use super::programs::{CLIENT, SERVER};
use super::{PROXY, RELAY, SYSTEMS, Work};
use crate::error::{Attempt, Error, Result};
use crate::installed::path_of;

/// What a client needs to reach the server in one system.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The wrapped server, from a wrapped client.
    Wrapped,
    /// A port of the loopback interface.
    Port(u16),
    /// The plain server, through a proxy at this port.
    Proxy(u16),
}

/// Everything that a measurement needs. It ends when it is dropped.
pub(super) struct Site {
    places: Vec<(&'static str, Place)>,
    notes: Vec<String>,
    plain: u16,
    carina: PathBuf,
    // The processes end before the node, and the node before its directory.
    processes: Vec<Process>,
    node: TestNode,
}

/// A process that is killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    /// Starts the node, the servers, and each relay that is installed.
    pub(super) fn start() -> Result<Site> {
        let own = std::env::current_exe().attempt("finding this program")?;
        let mut site = Site {
            places: vec![(OURS, Place::Wrapped)],
            notes: vec![NOTE.to_owned()],
            plain: free_port()?,
            carina: own.with_file_name("carina"),
            processes: Vec::new(),
            node: TestNode::start("wrap", Network::Shared, None)?,
        };
        let server = [PYTHON, "-c", SERVER];
        let mut wrapped = site.carina(&["wrap", "--as", HOST]);
        wrapped.args(server).arg(WRAPPED_PORT.to_string());
        site.serve(wrapped)?;
        let mut plain = Command::new(server[0]);
        plain.args(&server[1..]).arg(site.plain.to_string());
        site.serve(plain)?;
        site.places.push(("tcp", Place::Port(site.plain)));
        site.start_gateways()?;
        site.start_socat()?;
        site.start_ssh()?;
        Ok(site)
    }

    /// The systems that can be measured, in the order of the tables.
    pub(super) fn systems(&self) -> Vec<&'static str> {
        let has = |name: &&str| self.places.iter().any(|(place, _)| place == name);
        SYSTEMS.into_iter().filter(|name| has(name)).collect()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Runs a client.
    pub(super) fn measure(
        &self,
        system: &str,
        work: Work,
        size: u64,
        time_ns: u64,
    ) -> Result<Vec<(Metric, f64)>> {
        let place = self.places.iter().find(|(name, _)| *name == system);
        let Some((_, place)) = place else {
            return Err(Error::NoAnswer(format!("{system} is not started")));
        };
        let letter = match work {
            Work::Bulk => "b",
            Work::RoundTrips => "r",
        };
        let (host, port) = match place {
            Place::Wrapped => (format!("{HOST}.dif.internal"), WRAPPED_PORT),
            Place::Port(port) => (LOOPBACK.to_owned(), *port),
            Place::Proxy(_) => (LOOPBACK.to_owned(), self.plain),
        };
        let mut command = match place {
            Place::Wrapped => {
                let mut command = self.carina(&["wrap"]);
                command.arg(PYTHON);
                command
            }
            _ => Command::new(PYTHON),
        };
        let numbers = [port.to_string(), size.to_string(), time_ns.to_string()];
        let [port, size, time] = numbers.each_ref().map(String::as_str);
        command.args(["-c", CLIENT, &host, port, letter, size, time]);
        if let Place::Proxy(port) = place {
            command.arg(port.to_string());
        }
        let output = end_with_parent(&mut command).stdin(Stdio::null()).output();
        let output = output.attempt("running the client")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let values: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
        match (work, &values[..]) {
            (Work::Bulk, [bytes, ns]) if *ns > 0.0 => {
                Ok(vec![(Metric::GoodputMbps, bytes * 8000.0 / ns)])
            }
            (Work::RoundTrips, [mean, median, p99]) => Ok(vec![
                (Metric::RttUs, mean / 1000.0),
                (Metric::RttP50Us, median / 1000.0),
                (Metric::RttP99Us, p99 / 1000.0),
            ]),
            _ => {
                let error = String::from_utf8_lossy(&output.stderr);
                Err(Error::NoAnswer(format!("{system}: {text}{error}")))
            }
        }
    }

    /// A command of `carina` with this node.
    fn carina(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.carina);
        command.arg("--run").arg(self.node.path()).args(words);
        command
    }

    /// Starts a server and waits until it is ready.
    fn serve(&mut self, command: Command) -> Result<()> {
        let mut process = self.spawn(command)?;
        let mut line = String::new();
        if let Some(output) = process.0.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.attempt("reading what the server says")?;
        }
        if line != "ready\n" {
            return Err(Error::NoAnswer(format!("the server has said {line:?}")));
        }
        self.processes.push(process);
        Ok(())
    }

    fn spawn(&self, mut command: Command) -> Result<Process> {
        let what = format!("starting {}", command.get_program().to_string_lossy());
        end_with_parent(&mut command).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map(Process).attempt(what)
    }

    /// Starts a relay that listens on `port`, and waits until it does.
    fn relay(&mut self, name: &'static str, command: Command, port: u16) -> Result<()> {
        let mut process = self.spawn(command)?;
        let deadline = Instant::now() + START;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = process.0.try_wait().attempt("waiting for a relay")?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(Error::NoAnswer(format!("{name} does not listen")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.processes.push(process);
        Ok(())
    }

    /// `carina expose` with `carina connect`, and `carina proxy`.
    fn start_gateways(&mut self) -> Result<()> {
        let server = format!("{LOOPBACK}:{}", self.plain);
        let exposed = self.carina(&["expose", "tcp", &server, "--as", "plain"]);
        let exposed = self.spawn(exposed)?;
        self.processes.push(exposed);
        let name = crate::peer::app_name("plain")?;
        self.node.wait_for_name(&name, START)?;
        let port = free_port()?;
        let listen = format!("{LOOPBACK}:{port}");
        let connector = self.carina(&["connect", "plain", "--tcp", &listen]);
        self.relay("connect", connector, port)?;
        self.places.push(("connect", Place::Port(port)));
        let port = free_port()?;
        let listen = format!("{LOOPBACK}:{port}");
        let rule = format!("{server} -> kernel");
        let proxy = self.carina(&["proxy", "--http", &listen, "--rule", &rule]);
        self.relay(PROXY, proxy, port)?;
        self.places.push((PROXY, Place::Proxy(port)));
        Ok(())
    }

    fn start_socat(&mut self) -> Result<()> {
        let Some(socat) = path_of("socat") else {
            self.notes.push("socat is not installed".to_owned());
            return Ok(());
        };
        let port = free_port()?;
        let listen = format!("TCP-LISTEN:{port},bind={LOOPBACK},fork,reuseaddr,nodelay");
        let mut command = Command::new(socat);
        command
            .arg(listen)
            .arg(format!("TCP:{LOOPBACK}:{},nodelay", self.plain));
        self.relay(RELAY, command, port)?;
        self.places.push((RELAY, Place::Port(port)));
        Ok(())
    }

    /// `ssh -L` to an sshd of this bench, with keys of its own.
    fn start_ssh(&mut self) -> Result<()> {
        let programs = ["sshd", "ssh", "ssh-keygen"].map(path_of);
        let [Some(sshd), Some(ssh), Some(keygen)] = programs else {
            self.notes
                .push("ssh, sshd and ssh-keygen are not all installed".to_owned());
            return Ok(());
        };
        let directory = self.node.path().join("ssh");
        std::fs::create_dir(&directory).attempt("making a directory for keys")?;
        let [key, settings] = ["key", "sshd_config"].map(|name| directory.join(name));
        let mut command = Command::new(keygen);
        command
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key);
        let made = command.status().attempt("making a key")?;
        let (of_sshd, port) = (free_port()?, free_port()?);
        let text = format!(
            "Port {of_sshd}\nListenAddress {LOOPBACK}\nHostKey {0}\nAuthorizedKeysFile {0}.pub\n\
             StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n",
            key.display()
        );
        std::fs::write(&settings, text).attempt("writing the settings of sshd")?;
        let mut server = Command::new(sshd);
        server.args(["-D", "-e", "-f"]).arg(&settings);
        let forward = format!("{LOOPBACK}:{port}:{LOOPBACK}:{}", self.plain);
        let mut client = Command::new(ssh);
        client.args([
            "-N",
            "-F",
            "/dev/null",
            "-o",
            "BatchMode=yes",
            "-p",
            &of_sshd.to_string(),
        ]);
        client.args([
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
        ]);
        client.arg("-i").arg(&key).args(["-L", &forward, LOOPBACK]);
        let started = match made.success() {
            true => self
                .relay("sshd", server, of_sshd)
                .and_then(|()| self.relay("ssh", client, port)),
            false => Err(Error::NoAnswer("ssh-keygen fails".to_owned())),
        };
        match started {
            Ok(()) => self.places.push(("ssh", Place::Port(port))),
            Err(error) => self.notes.push(format!("ssh is not measured: {error}")),
        }
        Ok(())
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).attempt("finding a free port")?;
    Ok(listener.local_addr().attempt("finding a free port")?.port())
}

/// The name of the wrapped server.
const HOST: &str = "bench";

/// Port of the wrapped server. It is only part of a name: no socket of the kernel has it.
const WRAPPED_PORT: u16 = 7000;

const PYTHON: &str = "/usr/bin/python3";
const LOOPBACK: &str = "127.0.0.1";

/// How long a process may take until it serves.
const START: Duration = Duration::from_secs(30);

const NOTE: &str = "client and server are programs in Python with TCP_NODELAY, on one host; the \
    time that Python takes is in all figures alike";
