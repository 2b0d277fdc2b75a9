//! Programs under a supervisor: this test program, started again, in a role.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use carina_api::ipc::{self, Flow, Mode, Registered, Reply, Request};
use carina_api::{DifName, PortId};
use carina_seccomp::{filter::Filter, spawn};
use carina_sys::{accept_seqpacket, listen_seqpacket, recv_with_fds, send_with_fds};
use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::settings::Settings;

/// A node with one DIF and nothing but names: it hands ends of streams to registrations.
struct Node {
    listener: OwnedFd,
    connections: Vec<OwnedFd>,
    names: HashMap<String, (usize, OwnedFd)>,
}

impl Node {
    fn start(path: &Path, is_over: Arc<AtomicBool>) -> thread::JoinHandle<()> {
        let mut node = Node {
            listener: listen_seqpacket(path).unwrap(),
            connections: Vec::new(),
            names: HashMap::new(),
        };
        thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                node.turn();
            }
        })
    }

    fn turn(&mut self) {
        let all = std::iter::once(&self.listener).chain(&self.connections);
        let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let tick = Duration::from_millis(50).try_into().unwrap();
        poll(&mut fds, Some(&tick)).unwrap();
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for at in (0..self.connections.len()).rev().filter(|at| ready[at + 1]) {
            let mut buffer = vec![0; 1 << 16];
            let received = recv_with_fds(&self.connections[at], &mut buffer);
            match received {
                Ok(message) if message.bytes > 0 => {
                    let request = ipc::decode(&buffer[..message.bytes]).unwrap();
                    self.answer(at, request, message.fds);
                }
                _ => {
                    self.names.retain(|_, (of, _)| *of != at);
                    for (of, _) in self.names.values_mut().filter(|(of, _)| *of > at) {
                        *of -= 1;
                    }
                    drop(self.connections.remove(at));
                }
            }
        }
        if ready[0] {
            let accepted = accept_seqpacket(&self.listener).unwrap();
            self.connections.push(accepted);
        }
    }

    fn answer(&mut self, at: usize, request: Request, fds: Vec<OwnedFd>) {
        let reply = |reply: &Reply| ipc::encode(reply).unwrap();
        let connection = &self.connections[at];
        match request {
            Request::Register { name, .. } => {
                let copy = connection.try_clone().unwrap();
                self.names.insert(name.to_string(), (at, copy));
                let difs = Vec::new();
                let bytes = reply(&Reply::Registered(Registered { name, difs }));
                send_with_fds(connection, &bytes, &[]).unwrap();
            }
            Request::Allocate {
                local,
                remote,
                spec,
                filler,
                ..
            } => {
                let Some((_, registration)) = self.names.get(remote.as_str()) else {
                    // A connection that ends is a refusal.
                    drop(self.connections.remove(at));
                    return;
                };
                let mut end = UnixStream::from(fds.into_iter().next().unwrap());
                end.read_exact(&mut vec![0; filler as usize]).unwrap();
                let flow = |local, remote| {
                    reply(&Reply::Flow(Flow {
                        request: None,
                        port: PortId(1),
                        local,
                        remote,
                        dif: DifName::new("n").unwrap(),
                        spec,
                        ring_bytes: 0,
                        tx_ring: 0,
                        light_wake: false,
                        sdu_max: 0,
                        mode: Mode::Stream,
                    }))
                };
                let to_program = flow(remote.clone(), local.clone());
                send_with_fds(registration, &to_program, &[end.as_fd()]).unwrap();
                send_with_fds(connection, &flow(local, remote), &[]).unwrap();
            }
            _ => {}
        }
    }
}

/// Runs `prefix` and this program in a role, under a supervisor; gives what it wrote.
fn supervised(role: &str, prefix: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let node = Node::start(&directory.path().join("ipc.sock"), Arc::clone(&is_over));
    let rules = [
        "10.9.0.0/16 -> dif as me:{port}",
        "listen 0.0.0.0:7000-7999 -> dif as me:{port}",
        "127.0.0.1:6666 -> refuse",
        "*.vm -> dif",
    ];
    let wrap = Wrap::new(Settings {
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        node: directory.path().join("ipc.sock"),
        names: directory.path().join("names"),
        host: "me".into(),
        carina: None,
    });
    let this = std::env::current_exe().unwrap();
    let words = [prefix, &[this.to_str().unwrap()]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("CARINA_TEST_ROLE", role);
    command.args(["--exact", "supervisor::tests::program", "--nocapture"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, listener) = spawn(command, Filter::of_socket_calls()).unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut errors = child.stderr.take().unwrap();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        let _ = output.read_to_string(&mut text);
        let _ = errors.read_to_string(&mut text);
        text
    });
    Supervisor::new(listener, wrap).unwrap().serve().unwrap();
    let status = child.wait().unwrap();
    is_over.store(true, Ordering::SeqCst);
    node.join().unwrap();
    let text = reader.join().unwrap();
    assert!(status.success(), "{role}: {status}: {text}");
    text
}

/// What a program does under a supervisor; nothing when this is run as a test.
#[test]
fn program() {
    let done = match std::env::var("CARINA_TEST_ROLE").as_deref() {
        Ok("flows") => flows(),
        Ok("kernel") => of_kernel(),
        Ok("waits") => waits(),
        Ok("stranger") => stranger(),
        _ => return,
    };
    done.unwrap();
    println!("role played");
}

fn flows() -> io::Result<()> {
    let to: SocketAddr = "10.9.0.1:7001".parse().unwrap();
    let refused = TcpStream::connect(to).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ECONNABORTED));
    let listener = TcpListener::bind("0.0.0.0:7001")?;
    assert_eq!(listener.local_addr()?.port(), 7001);
    let server = thread::spawn(move || {
        for _ in 0..CONNECTIONS {
            let (mut stream, peer) = listener.accept().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), peer);
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
        }
        // The socket blocks; this one does not.
        listener.set_nonblocking(true).unwrap();
        let none = listener.accept().unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    });
    for number in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(to)?;
        assert_eq!(stream.peer_addr()?, to);
        stream.set_nodelay(true)?;
        assert!(stream.nodelay()? && stream.take_error()?.is_none());
        write!(stream, "hello {number}")?;
        stream.shutdown(Shutdown::Write)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        assert_eq!(text, format!("hello {number}"));
    }
    server.join().unwrap();
    Ok(())
}

const CONNECTIONS: usize = 50;

fn of_kernel() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (accepted, peer) = listener.accept()?;
    assert_eq!(accepted.peer_addr()?, peer);
    assert_eq!(stream.local_addr()?, peer);
    stream.write_all(b"x")?;
    drop((listener, accepted));
    let gone = TcpStream::connect(address).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    let refused = TcpStream::connect("127.0.0.1:6666").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let (a, b) = (
        UdpSocket::bind("127.0.0.1:0")?,
        UdpSocket::bind("127.0.0.1:0")?,
    );
    a.connect(b.local_addr()?)?;
    a.send(b"datagram")?;
    assert_eq!(b.recv(&mut [0; 16])?, 8);
    // Port 53 of another address than the name servers: so Go's programs ask the kernel for the
    // source address of a connection.
    let asks = UdpSocket::bind("0.0.0.0:0")?;
    asks.connect("127.7.7.7:53")?;
    assert_eq!(asks.peer_addr()?, "127.7.7.7:53".parse().unwrap());
    assert!(asks.local_addr()?.ip().is_loopback());
    Ok(())
}

/// Ends while threads of it wait in calls.
fn waits() -> io::Result<()> {
    for port in 7010..7020 {
        let listener = TcpListener::bind(("0.0.0.0", port))?;
        thread::spawn(move || listener.accept());
    }
    // The last call is answered though the others wait.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    TcpStream::connect(listener.local_addr()?)?;
    Ok(())
}

/// A program that is not what the supervisor is.
fn stranger() -> io::Result<()> {
    let denied = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    let registration = TcpListener::bind("0.0.0.0:7005");
    let registered = registration.as_ref().map(drop);
    let registered = registered.err().and_then(io::Error::raw_os_error);
    let what = [
        (
            "low port",
            denied(TcpListener::bind("127.0.0.1:81").map(drop)),
        ),
        (
            "high port",
            denied(TcpListener::bind("127.0.0.1:0").map(drop)),
        ),
        ("registration", registered),
        (
            "flow",
            denied(TcpStream::connect("10.9.0.1:7005").map(drop)),
        ),
    ];
    for (what, error) in what {
        println!("{what}: {error:?}");
    }
    Ok(())
}

#[test]
fn connections_by_rule_are_flows_with_half_close() {
    assert!(supervised("flows", &[]).contains("role played"));
}

#[test]
fn sockets_that_no_rule_fits_stay_with_the_kernel() {
    assert!(supervised("kernel", &[]).contains("role played"));
}

#[test]
fn program_that_ends_in_its_calls_ends_the_supervisor() {
    assert!(supervised("waits", &[]).contains("role played"));
}

/// Whether a command of the system can start others here.
fn works(prefix: &[&str]) -> bool {
    let mut command = Command::new(prefix[0]);
    let status = command.args(&prefix[1..]).arg("true").output();
    status.is_ok_and(|output| output.status.success())
}

#[test]
fn supervisor_acts_with_the_rights_of_the_program_only() {
    let is_root = rustix::process::geteuid().is_root();
    let (denied, allowed) = (format!("{:?}", Some(libc::EACCES)), "None".to_owned());
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let user_namespace = ["unshare", "--user", "--map-root-user"];
    let network_namespace = ["unshare", "--net"];
    let cases: [(&[&str], [&String; 4]); 3] = [
        (&nobody, [&denied, &allowed, &denied, &denied]),
        // It has every capability there, and none here.
        (&user_namespace, [&denied, &allowed, &denied, &denied]),
        (&network_namespace, [&denied, &denied, &allowed, &allowed]),
    ];
    for (prefix, expected) in cases {
        if !is_root || !works(prefix) {
            println!("SKIP: {prefix:?} needs root");
            continue;
        }
        let text = supervised("stranger", prefix);
        for (what, expected) in ["low port", "high port", "registration", "flow"]
            .iter()
            .zip(expected)
        {
            let line = format!("{what}: {expected}");
            assert!(text.contains(&line), "{prefix:?}: no {line:?} in {text}");
        }
    }
}
