//! Addresses and routes of an interface, through rtnetlink(7).

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::error::NetdevError;
use crate::interface::check_interface_name;
use crate::netlink::{
    ACKNOWLEDGE, CREATE, EXCLUSIVE, Kind, Message, address_attribute, append, attribute, family,
    messages,
};

/// Adds addresses and routes to one interface in the network namespace of the calling thread. The
/// kernel removes both with the interface.
#[derive(Debug)]
pub struct InterfaceAddresses {
    socket: OwnedFd,
    name: String,
    index: u32,
    sequence: u32,
}

impl InterfaceAddresses {
    /// Finds the interface.
    ///
    /// # Errors
    /// There is no such interface, or the kernel refuses.
    pub fn of(name: &str) -> Result<InterfaceAddresses, NetdevError> {
        check_interface_name(name)?;
        let what = || format!("the addresses of interface {name}");
        let failed = |error: rustix::io::Errno| NetdevError::of_device(what(), error.into());
        // The default protocol of these sockets is NETLINK_ROUTE.
        let kind = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(failed)?;
        let index = name_to_index(&socket, name).map_err(failed)?;
        Ok(InterfaceAddresses {
            socket,
            name: name.to_owned(),
            index,
            sequence: 0,
        })
    }

    /// Adds an address with the length of its link's prefix. The kernel adds the route to the
    /// prefix. An IPv6 address is usable at once, without duplicate address detection.
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing, or the interface has the address already.
    pub fn add_address(&mut self, address: IpAddr, bits: u8) -> Result<(), NetdevError> {
        let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
        let mut body = vec![family(address), bits, flags, 0];
        body.extend(self.index.to_ne_bytes());
        address_attribute(&mut body, IFA_LOCAL, address);
        address_attribute(&mut body, IFA_ADDRESS, address);
        let what = format!("adding address {address}/{bits} to {}", self.name);
        self.request(what, RTM_NEWADDR, &body)
    }

    /// Adds a route to a prefix, all of whose addresses are reached over the interface.
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing, or the namespace has a route to the prefix already.
    pub fn add_route(&mut self, prefix: IpAddr, bits: u8) -> Result<(), NetdevError> {
        // Prefix lengths of destination and source, type of service, table, protocol (origin),
        // scope, type, flags.
        let mut body = vec![family(prefix), bits, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT];
        body.extend([RT_SCOPE_LINK, RTN_UNICAST, 0, 0, 0, 0]);
        address_attribute(&mut body, RTA_DST, prefix);
        attribute(&mut body, RTA_OIF, &self.index.to_ne_bytes());
        let what = format!("adding a route to {prefix}/{bits} over {}", self.name);
        self.request(what, RTM_NEWROUTE, &body)
    }

    fn request(&mut self, what: String, kind: u16, body: &[u8]) -> Result<(), NetdevError> {
        self.sequence += 1;
        let message = message(kind, self.sequence, body);
        let result = self.exchange(&message);
        result.map_err(|source| NetdevError::of_device(what, source))
    }

    fn exchange(&self, message: &[u8]) -> io::Result<()> {
        send(&self.socket, message, SendFlags::empty())?;
        let mut answer = [0; 4096];
        for _ in 0..ANSWERS_MAX {
            let (length, _) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
            match code_of(&answer[..length], self.sequence) {
                None => {}
                Some(0) => return Ok(()),
                Some(code) => return Err(io::Error::from_raw_os_error(code.saturating_neg())),
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(
        &mut bytes,
        kind,
        ACKNOWLEDGE | CREATE | EXCLUSIVE,
        sequence,
        body,
    );
    bytes
}

/// The kernel's result for a request: 0, or a negative error number. `None` if the message does not
/// answer the request.
fn code_of(answer: &[u8], sequence: u32) -> Option<i32> {
    match messages(answer).next()? {
        Message {
            kind: Kind::Result(code),
            sequence: answered,
            ..
        } if answered == sequence => Some(code),
        _ => None,
    }
}

const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
/// Largest number of messages to skip that do not answer the request.
const ANSWERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::NLMSG_ERROR;

    #[test]
    fn messages_have_their_length_and_attributes() {
        let mut body = vec![2, 24, 0, 0, 9, 0, 0, 0];
        address_attribute(&mut body, IFA_LOCAL, "10.0.0.4".parse().unwrap());
        let bytes = message(RTM_NEWADDR, 7, &body);
        assert_eq!(bytes.len(), 16 + 8 + 8);
        assert_eq!(bytes[..4], 32_u32.to_ne_bytes());
        assert_eq!(bytes[24..28], [8, 0, 2, 0]);
        assert_eq!(bytes[28..], [10, 0, 0, 4]);
        let mut body = Vec::new();
        address_attribute(&mut body, RTA_DST, "fd00::1".parse().unwrap());
        assert_eq!((body.len(), body[0]), (20, 20));
    }

    #[test]
    fn answer_is_known_by_its_sequence() {
        let mut answer = message(NLMSG_ERROR, 7, &(-17_i32).to_ne_bytes());
        assert_eq!(code_of(&answer, 7), Some(-17));
        assert_eq!(code_of(&answer, 8), None);
        for length in 0..answer.len() {
            assert_eq!(code_of(&answer[..length], 7), None, "{length}");
        }
        answer[4] = RTM_NEWADDR as u8;
        assert_eq!(code_of(&answer, 7), None);
    }

    #[test]
    fn unknown_interface_is_refused_by_name() {
        let error = InterfaceAddresses::of("carina-nope")
            .unwrap_err()
            .to_string();
        assert!(error.contains("carina-nope"), "{error}");
    }
}
