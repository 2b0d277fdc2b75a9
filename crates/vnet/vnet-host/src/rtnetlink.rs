//! Interfaces, addresses, routes and traffic control of a network namespace, through rtnetlink(7).
//!
//! Many requests go to the kernel in one message, and no process is started for them. `ip -n` would
//! copy the table of mounts, which has an entry for each namespace of the host.

mod message;
mod traffic;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use carina_netdev::netlink::{INET, INET6, Kind, messages};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt,
};

pub(crate) use self::message::{Interface, Request, StaticRoute};
pub(crate) use self::traffic::{PortChange, PortRequest};
use crate::error::{Attempt, Error, Result};

/// A socket to the kernel, for the namespace of the thread that has opened it.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: OwnedFd,
    /// Number of the last request.
    sequence: u32,
    buffer: Vec<u8>,
}

impl RouteSocket {
    /// Opens a socket for the namespace of this thread.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn new() -> Result<RouteSocket> {
        // The default protocol of these sockets is NETLINK_ROUTE.
        let kind = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None);
        let socket = socket.attempt("opening a socket to configure interfaces")?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER))
            .attempt("limiting the wait for the kernel's answer")?;
        Ok(RouteSocket {
            socket,
            sequence: 0,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Executes requests in their order. The kernel executes the others of a message after one that
    /// fails.
    ///
    /// # Errors
    /// The first request that the kernel refuses.
    pub(crate) fn execute(&mut self, requests: &[Request<'_>]) -> Result<()> {
        for chunk in requests.chunks(REQUESTS_MAX) {
            let first = self.sequence.wrapping_add(1);
            let mut bytes = Vec::new();
            for (place, request) in chunk.iter().enumerate() {
                self.sequence = self.sequence.wrapping_add(1);
                // The kernel answers a request that fails in any case, and the last one.
                let is_last = place + 1 == chunk.len();
                request.encode(self.sequence, is_last, &mut bytes);
            }
            self.send(&bytes)?;
            self.await_execution(first, chunk)?;
        }
        Ok(())
    }

    fn await_execution(&mut self, first: u32, requests: &[Request<'_>]) -> Result<()> {
        let mut refused = Ok(());
        // Each answer has at least one message.
        for _ in 0..=requests.len() {
            let length = self.receive()?;
            for message in messages(&self.buffer[..length]) {
                let place = message.sequence.wrapping_sub(first) as usize;
                let (Kind::Result(code), Some(request)) = (message.kind, requests.get(place))
                else {
                    continue;
                };
                if code != 0 && refused.is_ok() {
                    refused = Err(error_of(code)).attempt(request.to_string());
                }
                if place + 1 == requests.len() {
                    return refused;
                }
            }
        }
        Err(Error::Ended(ANSWERS))
    }

    /// The interfaces of the namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn interfaces(&mut self) -> Result<Vec<Interface>> {
        let mut found = Vec::new();
        self.dump(message::all_interfaces, |kind, body| {
            if kind == message::NEW_LINK {
                found.extend(Interface::decode(body));
            }
        })?;
        Ok(found)
    }

    /// The static routes in the main tables of IPv4, and of IPv6 if `has_ipv6`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn static_routes(&mut self, has_ipv6: bool) -> Result<BTreeSet<StaticRoute>> {
        let mut found = BTreeSet::new();
        let families = [INET, INET6];
        for family in families.into_iter().take(1 + usize::from(has_ipv6)) {
            let request = |sequence| message::all_routes(sequence, family);
            self.dump(request, |kind, body| {
                if kind == message::NEW_ROUTE {
                    found.extend(StaticRoute::decode(body));
                }
            })?;
        }
        Ok(found)
    }

    fn dump(
        &mut self,
        request: impl FnOnce(u32) -> Vec<u8>,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request(self.sequence);
        self.send(&bytes)?;
        for _ in 0..DUMP_MESSAGES_MAX {
            let length = self.receive()?;
            for message in messages(&self.buffer[..length]) {
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    Kind::Done => return Ok(()),
                    Kind::Result(0) => {}
                    Kind::Result(code) => {
                        return Err(error_of(code)).attempt("listing interfaces or routes");
                    }
                    Kind::Other(kind) => each(kind, message.body),
                }
            }
        }
        Err(Error::Ended(ANSWERS))
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        let sent = send(&self.socket, bytes, SendFlags::empty());
        sent.map(drop).attempt("sending a request about interfaces")
    }

    fn receive(&mut self) -> Result<usize> {
        let received = recv(&self.socket, &mut self.buffer[..], RecvFlags::empty());
        let (length, _) = received.attempt("receiving the kernel's answer about interfaces")?;
        Ok(length)
    }
}

/// The error for a negative number of the kernel.
fn error_of(code: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(code.saturating_neg())
}

const ANSWERS: &str = "the kernel's answer about interfaces";
/// How long the kernel may take to answer: other processes may hold its lock meanwhile.
const ANSWER: Duration = Duration::from_secs(30);
/// Largest number of requests in a message. The answers to all of them fit into the socket's
/// buffer.
const REQUESTS_MAX: usize = 64;
/// Room for an answer; the kernel sends at most 32 KiB at once.
const BUFFER_BYTES: usize = 1 << 15;
/// Largest number of answers to a request that lists things; each has several of them.
const DUMP_MESSAGES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use carina_namespaces::{Namespace, NamespaceAccess};
    use carina_wire::ether::Mac;

    use super::*;
    use crate::namespace::{existing, rename, within};

    fn route(third: u8, via: u8) -> StaticRoute {
        StaticRoute {
            to: IpAddr::V4(Ipv4Addr::new(10, 1, third, 0)),
            bits: 24,
            via: IpAddr::V4(Ipv4Addr::new(10, 0, 0, via)),
        }
    }

    #[test]
    fn kernel_has_what_was_requested_in_few_messages() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: namespaces of this host need root");
            return;
        }
        let name = format!("cv-rtnetlink-{}", std::process::id());
        let namespace = Namespace::new(&name).unwrap();
        let veth = ["link", "add", "eth0", "type", "veth", "peer", "name"];
        namespace.ip(&[&veth[..], &["eth1"]].concat()).unwrap();
        // Without a carrier the kernel forgets neighbours.
        namespace.ip(&["link", "set", "eth1", "up"]).unwrap();
        within(&name, || {
            let mut socket = RouteSocket::new()?;
            let before = socket.interfaces()?;
            let is_eth0 = |interface: &&Interface| interface.name == "eth0";
            let eth0 = before.iter().find(is_eth0).unwrap();
            assert!(!eth0.is_up && eth0.mtu == 1500);
            let mac = Mac([2, 0, 0, 0, 0, 7]);
            let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
            let mut requests = vec![
                Request::Up {
                    interface: eth0,
                    mac: Some(mac),
                    mtu: Some(1400),
                },
                Request::Address {
                    interface: eth0,
                    address: address(1),
                    bits: 24,
                },
                Request::Neighbour {
                    interface: eth0,
                    address: address(2),
                    mac: Mac([2, 0, 0, 0, 0, 9]),
                },
            ];
            let wanted: BTreeSet<StaticRoute> = (0..200).map(|third| route(third, 2)).collect();
            requests.extend(wanted.iter().copied().map(Request::Route));
            let count = requests.len() as u32;
            let first = socket.sequence;
            socket.execute(&requests)?;
            assert_eq!(socket.sequence - first, count);
            let after = socket.interfaces()?;
            let eth0 = after.iter().find(is_eth0).unwrap();
            assert_eq!((eth0.is_up, eth0.mtu, eth0.mac), (true, 1400, Some(mac)));
            assert_eq!(socket.static_routes(true)?, wanted);

            // Another next hop replaces the first, and what is removed is absent.
            let changed = [
                Request::Route(route(7, 3)),
                Request::RemoveRoute(route(8, 2)),
            ];
            socket.execute(&changed)?;
            let routes = socket.static_routes(false)?;
            assert!(routes.contains(&route(7, 3)) && !routes.contains(&route(7, 2)));
            assert!(!routes.contains(&route(8, 2)) && routes.len() == 199);

            // A request that fails stops no other, and its error has its words.
            let via = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
            let unreachable = StaticRoute { via, ..route(9, 2) };
            let error = socket
                .execute(&[Request::Route(unreachable), Request::Route(route(8, 2))])
                .unwrap_err()
                .to_string();
            assert!(error.contains("10.1.9.0/24 via 192.0.2.1"), "{error}");
            assert_eq!(socket.static_routes(false)?.len(), 200);
            Ok(())
        })
        .unwrap();
        let words = ["-n", name.as_str(), "neighbour", "show", "10.0.0.2"];
        let shown = NamespaceAccess::of_root().ip(&words).unwrap();
        for words in ["dev eth0", "lladdr 02:00:00:00:00:09", "extern_learn"] {
            assert!(shown.contains(words), "{shown}");
        }
    }

    #[test]
    fn interface_has_its_new_name() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: namespaces of this host need root");
            return;
        }
        let name = format!("cv-rename-{}", std::process::id());
        let namespace = Namespace::new(&name).unwrap();
        // Every kernel renames an interface that is down.
        let veth = ["link", "add", "eth0", "type", "veth", "peer", "name"];
        namespace.ip(&[&veth[..], &["eth1"]].concat()).unwrap();
        rename(&name, "eth1", "eth7").unwrap();
        let names = ["eth1", "eth7"].map(str::to_owned);
        assert_eq!(existing(&name, &names).unwrap(), ["eth7".into()].into());
    }
}
