//! The name server of static programs, which ask one over UDP.
//!
//! ```text
//!  program == socket pair == Resolver -- names that a rule makes flows --> table of names
//!                                     -- all others, unchanged ----------> the program's server
//! ```
//!
//! A UDP socket that the program connects to port 53 becomes one end of a pair of sockets that keep
//! messages apart. The other end is here; each message is a question.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;

use carina_sys::{Epoll, Interest, socketpair_seqpacket};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::calls::Wrap;
use crate::dns::{Query, Records};
use crate::supervisor::waiting::lock;

/// The name server for static programs. Its thread starts with the first program that asks.
pub(super) struct Resolver {
    shared: Arc<Shared>,
    has_thread: Mutex<bool>,
}

struct Shared {
    wrap: Arc<Wrap>,
    epoll: Epoll,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    all: BTreeMap<u64, Client>,
    last: u64,
}

/// A socket of a program that the program has connected to a name server.
struct Client {
    /// The resolver's end of the pair of sockets.
    end: OwnedFd,
    /// The name server to which the program connected its socket.
    server: SocketAddr,
    /// The resolver's socket to that server; `None` until a question is forwarded.
    upstream: Option<UdpSocket>,
    /// The question that was forwarded last and that the server has not answered.
    asked: Option<Query>,
}

impl Resolver {
    pub(super) fn new(wrap: Arc<Wrap>) -> io::Result<Resolver> {
        let shared = Shared {
            wrap,
            epoll: Epoll::new()?,
            clients: Mutex::default(),
        };
        Ok(Resolver {
            shared: Arc::new(shared),
            has_thread: Mutex::new(false),
        })
    }

    /// Whether a UDP socket that is connected to this address asks a name server: one that the
    /// system's programs use. Some programs connect a UDP socket to port 53 of any address to learn
    /// their own, as Go's do before they choose between addresses of a host.
    pub(super) fn is_server(&self, to: SocketAddr) -> bool {
        // The file may change while the program runs.
        let text = std::fs::read_to_string(SERVERS_FILE).unwrap_or_default();
        to.port() == PORT && servers(&text).contains(&to.ip().to_canonical())
    }

    /// Makes a pair of sockets, keeps one end, and returns the other, which takes the place of the
    /// program's socket to `server`.
    pub(super) fn connect(&self, server: SocketAddr) -> io::Result<OwnedFd> {
        self.start()?;
        let (programs, end) = socketpair_seqpacket()?;
        let mut clients = lock(&self.shared.clients);
        if clients.all.len() >= CLIENTS_MAX {
            // Its program reads the end, and asks again.
            clients.all.pop_first();
        }
        clients.last += 1;
        let number = clients.last;
        self.shared.epoll.add(&end, 2 * number, Interest::Read)?;
        let client = Client {
            end,
            server,
            upstream: None,
            asked: None,
        };
        clients.all.insert(number, client);
        Ok(programs)
    }

    fn start(&self) -> io::Result<()> {
        let mut has_thread = lock(&self.has_thread);
        if !*has_thread {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn(move || shared.serve())?;
            *has_thread = true;
        }
        Ok(())
    }
}

impl Shared {
    /// Answers questions until the process ends.
    fn serve(&self) {
        let mut ready = Vec::new();
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        while self.epoll.wait(&mut ready, None).is_ok() {
            let mut clients = lock(&self.clients);
            for event in &ready {
                let number = event.token / 2;
                let Some(client) = clients.all.get_mut(&number) else {
                    continue;
                };
                let is_open = if event.token % 2 == 0 {
                    self.ask(number, client, &mut buffer)
                } else {
                    client.answer(&mut buffer)
                };
                if !is_open {
                    clients.all.remove(&number);
                }
            }
        }
    }

    /// Reads a program's question and answers or forwards it. False when the program has closed its
    /// socket.
    fn ask(&self, number: u64, client: &mut Client, buffer: &mut [u8]) -> bool {
        let message = match recv(&client.end, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return false,
            Ok((_, bytes)) => &buffer[..bytes],
            Err(error) => return error == Errno::AGAIN || error == Errno::INTR,
        };
        let query = Query::read(message).ok();
        if let Some((query, records)) = query.as_ref().and_then(|query| self.records(query)) {
            client.send(&query.answer_datagram(&records));
            return true;
        }
        client.asked = query;
        if client.forward(message).is_err() {
            client.fail();
        }
        if let Some(upstream) = &client.upstream {
            // It was added before, unless this was the first question.
            let _ = self.epoll.add(upstream, 2 * number + 1, Interest::Read);
        }
        true
    }

    /// Returns the records for a question about a name that the rules make a flow; `None` for every
    /// other question, which the program's own server must answer.
    fn records<'a>(&self, query: &'a Query) -> Option<(&'a Query, Records)> {
        if let Some(address) = query.reverse() {
            let name = self.wrap.name(address)?;
            return Some((query, Records::Name(name)));
        }
        let records = match self.wrap.lookup(query.name()) {
            Ok(found) => {
                let (four, six) = found?;
                Records::Addresses(vec![four.into(), six.into()])
            }
            Err(error) => {
                eprintln!("carina wrap: looking up {}: {error}", query.name());
                Records::Failed
            }
        };
        Some((query, records))
    }
}

impl Client {
    /// Forwards a message to the program's own name server.
    fn forward(&mut self, message: &[u8]) -> io::Result<()> {
        let upstream = match &self.upstream {
            Some(upstream) => upstream,
            None => {
                let any: SocketAddr = match self.server {
                    SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                    SocketAddr::V6(_) => ([0; 8], 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(self.server)?;
                socket.set_nonblocking(true)?;
                self.upstream.insert(socket)
            }
        };
        upstream.send(message).map(drop)
    }

    /// The server has answered, or the system says that it cannot be reached.
    fn answer(&mut self, buffer: &mut [u8]) -> bool {
        let Some(upstream) = &self.upstream else {
            return true;
        };
        match upstream.recv(buffer) {
            Ok(bytes) => self.send(&buffer[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.fail(),
        }
        true
    }

    /// Answers the forwarded question with a failure, so that the program does not wait.
    fn fail(&mut self) {
        if let Some(query) = self.asked.take() {
            self.send(&query.answer_datagram(&Records::Failed));
        }
    }

    /// Sends the program a message. If the program's socket has no room, the message is lost, as a
    /// datagram would be.
    fn send(&self, message: &[u8]) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = send(self.end.as_fd(), message, flags);
    }
}

/// The name servers of a file resolv.conf(5); without any, those of this host, as the C library and
/// Go have it.
fn servers(text: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        let address = words.next().filter(|_| is_server)?;
        let without_scope = address.split('%').next()?;
        without_scope.parse().ok()
    };
    let found: Vec<IpAddr> = text.lines().filter_map(address).collect();
    if found.is_empty() {
        return vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    found
}

/// The file with the addresses of the system's name servers.
const SERVERS_FILE: &str = "/etc/resolv.conf";

/// The port of name servers (RFC 1035 §4.2).
const PORT: u16 = 53;

/// Largest number of programs' sockets that the resolver serves at a time.
const CLIENTS_MAX: usize = 1024;

/// Longest message over UDP, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Stack size of the resolver's thread in bytes; the buffer for messages is on the heap.
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_as_the_c_library_reads_them() {
        let shown = |text: &str| {
            servers(text)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let text = "# nameserver 1.1.1.1\nsearch vm\nnameserver 127.0.0.53\n\
            nameserver\tfe80::1%eth0 # x\nnameserver x\n";
        assert_eq!(shown(text), ["127.0.0.53", "fe80::1"]);
        assert_eq!(shown("options edns0\n"), ["127.0.0.1", "::1"]);
    }
}
