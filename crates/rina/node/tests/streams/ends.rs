//! Ends of byte streams in tests, and the nodes between them.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use carina_api::control::DifRole;
use carina_api::ipc::Mode;
use carina_api::{ErrorBody, FlowSpec};
use carina_sys::socketpair_stream;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::support::members::{enrolled, request, routed};
use crate::support::pair::Pair;
use crate::support::*;

/// What an application attaches to its request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attach {
    Nothing,
    Unix,
    Tcp,
}

/// An application's end of a stream.
#[derive(Debug)]
pub(super) struct Stream(pub OwnedFd);

impl Stream {
    pub(super) fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(&self.0, bytes, SendFlags::NOSIGNAL)
    }

    /// Writes as many bytes as the socket accepts without blocking.
    pub(super) fn write_now(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    pub(super) fn write_all(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = &bytes[self.write(bytes).unwrap()..];
        }
    }

    /// Waits for bytes and reads them; empty at the end of the stream.
    pub(super) fn read(&self) -> Result<Vec<u8>, Errno> {
        assert!(readable(&self.0, 120_000), "no bytes for two minutes");
        let mut buffer = vec![0; 1 << 16];
        let (_, bytes) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        buffer.truncate(bytes);
        Ok(buffer)
    }

    pub(super) fn read_to_end(&self) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        loop {
            let bytes = self.read()?;
            if bytes.is_empty() {
                return Ok(all);
            }
            all.extend(bytes);
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) {
        shutdown(&self.0, how).unwrap();
    }

    /// Closes a TCP connection with a reset.
    pub(super) fn reset(self) {
        set_socket_linger(&self.0, Some(Duration::ZERO)).unwrap();
    }
}

/// Two ends of a TCP connection.
pub(super) fn tcp_pair() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let kept = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (attached, _) = listener.accept().unwrap();
    (kept.into(), attached.into())
}

/// The nodes that the flows of a test go through.
pub(super) struct Net {
    nodes: Nodes,
    server: Conn,
    caller: Conn,
    in_dif: &'static str,
}

enum Nodes {
    One(House),
    Two(Pair),
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.in_dif)
    }
}

impl Net {
    /// Three nets: one node, two nodes over shared memory, and two nodes with a normal DIF.
    pub(super) fn all(name: &str) -> [Net; 3] {
        [
            Net::local(name),
            Net::over_shared_memory(name),
            Net::dif(name),
        ]
    }

    pub(super) fn local(name: &str) -> Net {
        let house = House::new(name, "");
        let (server, caller) = (house.register("server"), house.conn());
        Net {
            nodes: Nodes::One(house),
            server,
            caller,
            in_dif: "local",
        }
    }

    pub(super) fn over_shared_memory(name: &str) -> Net {
        let pair = Pair::new(name, "");
        let server = pair.register("server");
        Net {
            caller: pair.guest.conn(),
            nodes: Nodes::Two(pair),
            server,
            in_dif: "hv.x",
        }
    }

    pub(super) fn dif(name: &str) -> Net {
        let pair = Pair::new(name, "");
        for (house, role, ipcp) in [
            (&pair.host, DifRole::Create, "host"),
            (&pair.guest, DifRole::Join, "guest"),
        ] {
            let create = request("net", role, "hv.x", ipcp);
            house.control().create_dif(&create).unwrap();
            enrolled(house, ipcp);
        }
        routed(&pair.guest, "net", "host");
        let server = pair.host.conn();
        server.register("server", Some("net")).unwrap();
        eventually("the name is known", || {
            let objects = pair.guest.control();
            objects
                .rib(Some("net"), None, "/directory/server", 0)
                .is_ok()
        });
        Net {
            caller: pair.guest.conn(),
            nodes: Nodes::Two(pair),
            server,
            in_dif: "net",
        }
    }

    pub(super) fn caller_house(&self) -> &House {
        match &self.nodes {
            Nodes::One(house) => house,
            Nodes::Two(pair) => &pair.guest,
        }
    }

    pub(super) fn server_house(&self) -> &House {
        match &self.nodes {
            Nodes::One(house) => house,
            Nodes::Two(pair) => &pair.host,
        }
    }

    /// The registration of `server`.
    pub(super) fn server(&self) -> &Conn {
        &self.server
    }

    pub(super) fn dif_name(&self) -> &'static str {
        self.in_dif
    }

    pub(super) fn stop_node(&mut self) {
        if let Nodes::One(house) = &mut self.nodes {
            house.node.take().unwrap().stop();
        }
    }

    /// Allocates a flow in stream mode, to which caller and server attach these sockets.
    pub(super) fn allocate(&self, attached: [Option<OwnedFd>; 2]) -> Result<[Taken; 2], ErrorBody> {
        let [of_caller, of_server] = attached;
        let fds = |fd: &Option<OwnedFd>| fd.iter().map(|fd| fd.try_clone().unwrap()).collect();
        let (of_caller, of_server): (Vec<_>, Vec<_>) = (fds(&of_caller), fds(&of_server));
        let ask = allocate(
            "server",
            Some(self.in_dif),
            FlowSpec::reliable(),
            Mode::Stream,
        );
        let fds: Vec<_> = of_caller.iter().map(AsFd::as_fd).collect();
        self.caller.say_attaching(&ask, &fds);
        drop(of_caller);
        let number = self.server.flow_request_of(&self.caller).request;
        let fds: Vec<_> = of_server.iter().map(AsFd::as_fd).collect();
        let accept = accepted(number, Mode::Stream);
        self.server.say_attaching(&accept, &fds);
        drop(of_server);
        let theirs = self.server.flow();
        Ok([self.caller.flow(), theirs])
    }

    /// Allocates a stream, and returns the ends of caller and server.
    pub(super) fn stream(&self, attach: [Attach; 2]) -> [Stream; 2] {
        let (kept, attached): (Vec<_>, Vec<_>) = attach.into_iter().map(Attach::pair).unzip();
        let taken = self.allocate(attached.try_into().unwrap()).unwrap();
        let ends = taken.into_iter().zip(kept).map(|(taken, kept)| {
            assert!(taken.socket.is_some() != kept.is_some());
            Stream(taken.socket.or(kept).unwrap())
        });
        ends.collect::<Vec<_>>().try_into().unwrap()
    }

    /// Allocates a flow of a caller in ring mode to a server in stream mode.
    pub(super) fn ring_and_stream(&self, attach: Attach) -> (Taken, Stream) {
        let (kept, attached) = attach.pair();
        let ask = allocate(
            "server",
            Some(self.in_dif),
            FlowSpec::reliable(),
            Mode::Ring,
        );
        self.caller.say(&ask);
        let number = self.server.flow_request_of(&self.caller).request;
        let fds: Vec<_> = attached.iter().map(AsFd::as_fd).collect();
        self.server
            .say_attaching(&accepted(number, Mode::Stream), &fds);
        let theirs = self.server.flow();
        drop(attached);
        (self.caller.flow(), Stream(theirs.socket.or(kept).unwrap()))
    }

    pub(super) fn no_flow_is_left(&self, what: &str) {
        for house in [self.caller_house(), self.server_house()] {
            eventually_or(&format!("no flow is left, {what}, {self:?}"), || {
                let flows = house.control().flows().unwrap();
                let flows: Vec<_> = flows.iter().filter(|flow| flow.user.is_none()).collect();
                flows.is_empty().then_some(()).ok_or(format!("{flows:?}"))
            });
        }
    }
}

impl Attach {
    /// Creates the socket that the application keeps, and the socket that it attaches.
    pub(super) fn pair(self) -> (Option<OwnedFd>, Option<OwnedFd>) {
        let (kept, attached) = match self {
            Attach::Nothing => return (None, None),
            Attach::Unix => socketpair_stream().unwrap(),
            Attach::Tcp => tcp_pair(),
        };
        (Some(kept), Some(attached))
    }
}
