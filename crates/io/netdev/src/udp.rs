//! Bursts of UDP datagrams: one non-blocking system call for many.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::error::NetdevError;

/// A non-blocking UDP socket with buffers for one burst in each direction.
#[derive(Debug)]
pub struct DatagramSocket {
    socket: UdpSocket,
    is_v6: bool,
    bytes_max: usize,
    rx: Vec<u8>,
    /// Length and sender of each datagram in the last received burst.
    received: Vec<(usize, SocketAddr)>,
    tx: Vec<u8>,
    /// Length and destination of each datagram that is queued for sending.
    queued: Vec<(usize, SocketAddr)>,
}

impl DatagramSocket {
    /// Opens a socket on `address`. `bytes_max` is the length of the longest datagram, 1 to 65507
    /// bytes. The unspecified IPv6 address (`[::]`) receives IPv4 too.
    ///
    /// # Errors
    /// The address is in use, or does not belong to this system.
    pub fn bind(address: SocketAddr, bytes_max: usize) -> Result<DatagramSocket, NetdevError> {
        let failed = |source| NetdevError::System {
            what: format!("binding a socket to UDP address {address}"),
            source,
        };
        let socket = UdpSocket::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let bytes_max = bytes_max.clamp(1, DATAGRAM_BYTES_MAX);
        grow_buffers(&socket);
        Ok(DatagramSocket {
            is_v6: address.is_ipv6(),
            socket,
            bytes_max,
            // One extra byte shows that a datagram was longer than allowed.
            rx: vec![0; DATAGRAMS * (bytes_max + 1)],
            received: Vec::with_capacity(DATAGRAMS),
            tx: vec![0; DATAGRAMS * bytes_max],
            queued: Vec::with_capacity(DATAGRAMS),
        })
    }

    /// Returns the local address of the socket.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the length of the longest datagram in bytes, as given to [`DatagramSocket::bind`].
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Receives the datagrams that wait, at most one burst, without blocking. Returns how many.
    pub fn receive(&mut self) -> usize {
        self.received.clear();
        let stride = self.bytes_max + 1;
        // SAFETY: all-zero bytes are valid for these C structures.
        let (mut vectors, mut headers, mut names): (
            [libc::iovec; DATAGRAMS],
            [libc::mmsghdr; DATAGRAMS],
            [libc::sockaddr_storage; DATAGRAMS],
        ) = unsafe { std::mem::zeroed() };
        for (at, buffer) in self.rx.chunks_exact_mut(stride).enumerate() {
            vectors[at].iov_base = buffer.as_mut_ptr().cast();
            vectors[at].iov_len = stride;
            let header = &mut headers[at].msg_hdr;
            header.msg_iov = &raw mut vectors[at];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut names[at]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        }
        // SAFETY: every header points to a vector, a buffer and a name that are distinct, live and
        // of the sizes given.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                DATAGRAMS as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        for at in 0..usize::try_from(count).unwrap_or(0) {
            if let Some(from) = address_of(&names[at]) {
                self.received.push((headers[at].msg_len as usize, from));
            } else {
                // Not an IP address: the datagram counts as empty, but keeps its position in the
                // burst.
                self.received.push((0, SocketAddr::from(([0, 0, 0, 0], 0))));
            }
        }
        self.received.len()
    }

    /// Returns datagram number `at` of the last burst, counted from 0, with its sender. `None` if
    /// it was longer than [`DatagramSocket::bytes_max`].
    #[must_use]
    pub fn datagram(&self, at: usize) -> Option<(&[u8], SocketAddr)> {
        let (bytes, from) = *self.received.get(at)?;
        let start = at * (self.bytes_max + 1);
        (bytes <= self.bytes_max).then(|| (&self.rx[start..start + bytes], from))
    }

    /// Returns the number of datagrams that can be queued before the next flush.
    #[must_use]
    pub fn room(&self) -> usize {
        DATAGRAMS - self.queued.len()
    }

    /// Returns the number of datagrams that wait for a flush.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Queues a datagram of `bytes` to `to` and returns its buffer, which the caller fills. The
    /// next flush sends it. `None` if the queue is full or the datagram too long.
    pub fn queue(&mut self, to: SocketAddr, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.bytes_max || self.room() == 0 {
            return None;
        }
        let start = self.queued.len() * self.bytes_max;
        self.queued.push((bytes, to));
        Some(&mut self.tx[start..start + bytes])
    }

    /// Sends the queued datagrams. A datagram that the kernel refuses for a permanent reason is
    /// dropped. Returns the number of dropped datagrams, and whether some remain queued because the
    /// kernel accepts none now.
    pub fn flush(&mut self) -> (usize, bool) {
        let (mut sent, mut lost) = (0, 0);
        while sent < self.queued.len() {
            match self.send_from(sent) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        || error.raw_os_error() == Some(libc::ENOBUFS) =>
                {
                    break;
                }
                // The first remaining datagram cannot be sent, e.g. because it has no route.
                Err(_) => {
                    sent += 1;
                    lost += 1;
                }
            }
        }
        let left = self.queued.len() - sent;
        for at in 0..left {
            let (bytes, _) = self.queued[sent + at];
            let from = (sent + at) * self.bytes_max;
            self.tx.copy_within(from..from + bytes, at * self.bytes_max);
        }
        self.queued.drain(..sent);
        (lost, left > 0)
    }

    fn send_from(&mut self, first: usize) -> io::Result<usize> {
        // SAFETY: all-zero bytes are valid for these C structures.
        let (mut vectors, mut headers, mut names): (
            [libc::iovec; DATAGRAMS],
            [libc::mmsghdr; DATAGRAMS],
            [libc::sockaddr_storage; DATAGRAMS],
        ) = unsafe { std::mem::zeroed() };
        let count = self.queued.len() - first;
        for at in 0..count {
            let (bytes, to) = self.queued[first + at];
            let start = (first + at) * self.bytes_max;
            let buffer = &mut self.tx[start..start + bytes];
            vectors[at].iov_base = buffer.as_mut_ptr().cast();
            vectors[at].iov_len = bytes;
            let header = &mut headers[at].msg_hdr;
            header.msg_iov = &raw mut vectors[at];
            header.msg_iovlen = 1;
            header.msg_namelen = put_address(&mut names[at], to, self.is_v6);
            header.msg_name = (&raw mut names[at]).cast();
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let fd = self.socket.as_raw_fd();
        // SAFETY: `count` headers point to vectors, buffers and names that are live and of the
        // sizes given; the kernel only reads them.
        let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count as _, flags as _) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl AsFd for DatagramSocket {
    /// The descriptor is readable when a datagram has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Requests kernel buffers for several bursts. The kernel grants what its limit allows.
fn grow_buffers(socket: &UdpSocket) {
    let bytes: libc::c_int = SOCKET_BUFFER_BYTES;
    for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        // SAFETY: the value is a local of the size given, and the kernel only reads it.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const bytes).cast(),
                size_of_val(&bytes) as libc::socklen_t,
            );
        }
    }
}

/// Converts an address of the kernel. An IPv4-mapped IPv6 address becomes an IPv4 address. `None`
/// for other families.
fn address_of(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a `sockaddr_in`, which the storage can hold.
            let v4 = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is a `sockaddr_in6`, which the storage can hold.
            let v6 = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(match ip.to_ipv4_mapped() {
                Some(v4) => SocketAddrV4::new(v4, port).into(),
                None => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

/// Writes an address in the form that a socket of its family expects. Returns its length.
pub(crate) fn put_address(
    name: &mut libc::sockaddr_storage,
    address: SocketAddr,
    is_v6: bool,
) -> libc::socklen_t {
    let (ip, port) = match (address.ip(), is_v6) {
        (IpAddr::V4(v4), true) => (IpAddr::V6(v4.to_ipv6_mapped()), address.port()),
        (ip, _) => (ip, address.port()),
    };
    match ip {
        IpAddr::V4(ip) => {
            // SAFETY: the storage is large and aligned enough for a `sockaddr_in`, of which any
            // bytes are valid.
            let v4 = unsafe { &mut *std::ptr::from_mut(name).cast::<libc::sockaddr_in>() };
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_port = port.to_be();
            v4.sin_addr.s_addr = u32::from(ip).to_be();
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        IpAddr::V6(ip) => {
            // SAFETY: as above, for a `sockaddr_in6`.
            let v6 = unsafe { &mut *std::ptr::from_mut(name).cast::<libc::sockaddr_in6>() };
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_port = port.to_be();
            v6.sin6_addr.s6_addr = ip.octets();
            if let SocketAddr::V6(address) = address {
                v6.sin6_scope_id = address.scope_id();
            }
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// Number of datagrams in a burst.
const DATAGRAMS: usize = 32;

/// Longest payload of a UDP datagram over IPv4, in bytes.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

const SOCKET_BUFFER_BYTES: libc::c_int = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(socket: &mut DatagramSocket) -> usize {
        for _ in 0..5000 {
            let count = socket.receive();
            if count > 0 {
                return count;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("no datagram for 5 s");
    }

    fn pair(a: &str, b: &str) -> (DatagramSocket, DatagramSocket) {
        let bind = |text: &str| DatagramSocket::bind(text.parse().unwrap(), 1000).unwrap();
        (bind(a), bind(b))
    }

    #[test]
    fn burst_arrives_with_its_sender_and_cut_datagrams_are_marked() {
        let (mut a, mut b) = pair("127.0.0.1:0", "127.0.0.1:0");
        let (from, to) = (a.local_address().unwrap(), b.local_address().unwrap());
        for n in 0..5u8 {
            a.queue(to, usize::from(n)).unwrap().fill(n);
        }
        assert_eq!(a.flush(), (0, false));
        let mut got = 0;
        while got < 5 {
            for at in 0..wait(&mut b) {
                let (bytes, sender) = b.datagram(at).unwrap();
                assert_eq!((bytes, sender), (&vec![got as u8; got][..], from));
                got += 1;
            }
        }
        let long = UdpSocket::bind("127.0.0.1:0").unwrap();
        long.send_to(&[7; 1001], to).unwrap();
        assert_eq!(wait(&mut b), 1);
        assert!(b.datagram(0).is_none());
        assert!(a.queue(to, 1001).is_none());
        for _ in 0..DATAGRAMS {
            assert!(a.queue(to, 1).is_some());
        }
        assert!(a.queue(to, 1).is_none());
    }

    #[test]
    fn a_socket_for_both_families_calls_ipv4_by_its_name() {
        let (mut both, mut v4) = pair("[::]:0", "127.0.0.1:0");
        let port = both.local_address().unwrap().port();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        v4.queue(to, 2).unwrap().copy_from_slice(b"hi");
        assert_eq!(v4.flush(), (0, false));
        assert_eq!(wait(&mut both), 1);
        let (bytes, from) = both.datagram(0).unwrap();
        assert_eq!((bytes, from), (&b"hi"[..], v4.local_address().unwrap()));
        both.queue(from, 2).unwrap().copy_from_slice(b"yo");
        assert_eq!(both.flush(), (0, false));
        assert_eq!(wait(&mut v4), 1);
        assert_eq!(v4.datagram(0).unwrap(), (&b"yo"[..], to));
    }

    #[test]
    fn an_address_in_use_is_named() {
        let (a, _) = pair("127.0.0.1:0", "127.0.0.1:0");
        let taken = a.local_address().unwrap();
        let error = DatagramSocket::bind(taken, 100).unwrap_err().to_string();
        assert!(error.contains(&taken.to_string()), "{error}");
    }
}
