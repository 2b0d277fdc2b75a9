//! Nodes, and members in rooms.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_client::Node;
use carina_ip::{Counters, IpError, IpSettings, Member, Status};
use carina_node::{Config, NodeHandle};
use carina_sys::EventFd;

use crate::room::Room;

/// A node with its run directory.
pub(crate) struct System {
    directory: tempfile::TempDir,
    node: Option<NodeHandle>,
}

impl System {
    pub(crate) fn new(toml: &str) -> System {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::parse(toml, None).unwrap();
        config.node.run_dir = Some(directory.path().join("run"));
        let node = Some(carina_node::Node::spawn(config).unwrap());
        System { directory, node }
    }

    pub(crate) fn run(&self) -> RunDir {
        RunDir::new(self.directory.path().join("run"))
    }

    pub(crate) fn client(&self) -> Node {
        Node::connect_to(self.run().ipc_sock()).unwrap()
    }

    /// Starts a member whose interface is in the room.
    pub(crate) fn member(&self, room: &Room, settings: IpSettings) -> Running {
        let (run, tun) = (self.run(), settings.tun.clone());
        let own = self.run();
        let (stop, thread) = room.run(move || {
            let stop = EventFd::new().unwrap();
            let stopped = stop.try_clone().unwrap();
            let node = Node::connect_to(run.ipc_sock()).unwrap();
            let mut member = Member::start(node, &run, settings).unwrap();
            (stop, std::thread::spawn(move || member.run(stopped)))
        });
        Running {
            stop,
            thread: Some(thread),
            run: own,
            tun,
        }
    }
}

/// Two nodes in rooms that are joined by an Ethernet, both members of DIF `n`.
pub(crate) struct Pair {
    pub systems: [System; 2],
    pub rooms: [Room; 2],
}

impl Pair {
    pub(crate) fn new() -> Option<Pair> {
        let rooms = [Room::new()?, Room::new()?];
        if !std::path::Path::new("/dev/net/tun").exists() {
            println!("SKIP: /dev/net/tun (the kernel's module tun) does not exist");
            return None;
        }
        rooms[0].join("va", &rooms[1], "vb", 1500);
        rooms[0].join("wa", &rooms[1], "wb", 1500);
        let system = |room: &Room, side: &'static str, role: &'static str| {
            room.run(move || {
                System::new(&format!(
                    "node.name = \"{side}\"\n[[ipcp]]\nname = \"e\"\ntype = \"eth\"\ndif = \
                     \"lan\"\ninterface = \"v{side}\"\n[[ipcp]]\nname = \"f\"\ntype = \"eth\"\ndif \
                     = \"lan2\"\ninterface = \"w{side}\"\n[[dif]]\nname = \"n\"\nrole = \"{role}\"\n\
                     over = [\"lan\"]\n"
                ))
            })
        };
        let systems = [
            system(&rooms[0], "a", "create"),
            system(&rooms[1], "b", "join"),
        ];
        Some(Pair { systems, rooms })
    }

    /// Starts the members 10.9.1.1 and 10.9.1.2, which also have IPv6 addresses.
    pub(crate) fn members(&self) -> [Running; 2] {
        let settings = |last: u8| IpSettings {
            address: vec![
                format!("10.9.1.{last}/24").parse().unwrap(),
                format!("fd00:9::{last}/64").parse().unwrap(),
            ],
            ..settings("n", last)
        };
        let members = [0, 1].map(|n| {
            let room = &self.rooms[n];
            self.systems[n].member(room, settings(n as u8 + 1))
        });
        for member in &members {
            eventually("the other member is known", || {
                member.status().members.len() == 2
            });
        }
        members
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The threads of the nodes live in the namespaces, so the nodes stop first.
        for system in &mut self.systems {
            system.node.take();
        }
    }
}

/// A member that runs until it is dropped.
pub(crate) struct Running {
    stop: EventFd,
    thread: Option<JoinHandle<Result<(), IpError>>>,
    run: RunDir,
    tun: String,
}

impl Running {
    pub(crate) fn status(&self) -> Status {
        let all = carina_ip::read_all(&self.run).unwrap();
        all.into_iter()
            .find(|candidate| candidate.tun == self.tun)
            .unwrap()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.status().counters
    }

    /// Stops the member, which must end without an error.
    pub(crate) fn stop(mut self) {
        self.stop.signal();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }

    /// How the member ended by itself.
    pub(crate) fn ended(mut self) -> IpError {
        self.thread.take().unwrap().join().unwrap().unwrap_err()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn settings(dif: &str, last: u8) -> IpSettings {
    let address = format!("10.9.1.{last}/24").parse().unwrap();
    IpSettings {
        tun: "ip0".to_owned(),
        ..IpSettings::new(carina_api::DifName::new(dif).unwrap(), address)
    }
}

/// Sends `bytes` bytes over TCP from one room to an address in the other, which sends them back.
pub(crate) fn tcp_echo(client: &Room, server: &Room, address: IpAddr, bytes: usize) {
    let address = server.run(move || {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut copy = connection.try_clone().unwrap();
            std::io::copy(&mut connection, &mut copy).unwrap();
            copy.shutdown(std::net::Shutdown::Write).unwrap();
        });
        address
    });
    client.run(move || echo_over(address, 0, bytes));
}

/// Sends `bytes` bytes to a server that sends them back. The bytes of each `number` differ.
pub(crate) fn echo_over(address: SocketAddr, number: usize, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| (at / 7 + number) as u8).collect();
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    let mut writer = connection.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    connection.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent, "{} bytes came back", received.len());
}

/// Whether a datagram from a socket at `source` in one room gets an answer of an echo server at
/// `address` in the other.
pub(crate) fn udp_echo(client: &Room, server: &Room, source: SocketAddr, address: IpAddr) -> bool {
    let address = server.run(move || {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
                socket.send_to(&buffer[..bytes], from).unwrap();
            }
        });
        address
    });
    client.run(move || {
        let socket = UdpSocket::bind(source).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        socket.send_to(b"hello", address).unwrap();
        let mut buffer = [0; 16];
        matches!(socket.recv_from(&mut buffer), Ok((5, from)) if from == address)
    })
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const LIMIT: Duration = Duration::from_secs(60);
