//! Selects the packets that are copied to the output `mirror`.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use carina_wire::ether::TPID_CUSTOMER;
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_IPV4};
use carina_wire::ipv6::Upper;

use crate::link::ETHER;

/// Which packets an AFTR copies to its mirror port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Monitor {
    /// No packet is copied.
    #[default]
    None,
    /// Every frame is copied, when it arrives and when it leaves.
    All,
    /// IPv4 packets from or to this address, also inside a tunnel.
    Address(Ipv4Addr),
}

/// The text is not an IPv4 address, `all` or `none`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: must be an IPv4 address, all or none")]
pub struct MonitorError(pub String);

impl FromStr for Monitor {
    type Err = MonitorError;

    fn from_str(text: &str) -> Result<Monitor, MonitorError> {
        match text {
            "none" => Ok(Monitor::None),
            "all" => Ok(Monitor::All),
            _ => match text.parse() {
                Ok(address) => Ok(Monitor::Address(address)),
                Err(_) => Err(MonitorError(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Monitor::None => f.write_str("none"),
            Monitor::All => f.write_str("all"),
            Monitor::Address(address) => address.fmt(f),
        }
    }
}

impl Monitor {
    /// Whether to copy `frame` to the mirror port.
    #[must_use]
    pub fn wants(self, frame: &[u8]) -> bool {
        match self {
            Monitor::None => false,
            Monitor::All => true,
            Monitor::Address(address) => ends(frame).is_some_and(|ends| ends.contains(&address)),
        }
    }
}

/// Source and destination address of the IPv4 packet in a frame, or of the inner one if it is
/// tunnelled in IPv6; `None` if the frame has no such packet.
fn ends(frame: &[u8]) -> Option<[Ipv4Addr; 2]> {
    let word = |at: usize| {
        let bytes = frame.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let tag = if word(12)? == TPID_CUSTOMER { 4 } else { 0 };
    let packet = tag + ETHER;
    let inner = match word(tag + 12)? {
        ETHERTYPE_IPV4 => packet,
        ETHERTYPE_IPV6 => {
            let upper = Upper::seen(frame.get(packet..)?)?;
            (upper.protocol == PROTOCOL_IPV4).then_some(packet + upper.start)?
        }
        _ => return None,
    };
    let address = |at: usize| {
        let bytes = frame.get(at..)?.first_chunk::<4>()?;
        Some(Ipv4Addr::from(*bytes))
    };
    Some([address(inner + 12)?, address(inner + 16)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        for text in ["none", "all", "192.0.2.1"] {
            assert_eq!(text.parse::<Monitor>().unwrap().to_string(), text);
        }
        let error = "some".parse::<Monitor>().unwrap_err().to_string();
        assert_eq!(error, "\"some\": must be an IPv4 address, all or none");
    }

    #[test]
    fn packets_of_an_address_are_found_within_tags_and_tunnels() {
        let mut plain = vec![0; 34];
        plain[12..14].copy_from_slice(&[8, 0]);
        plain[26..30].copy_from_slice(&[192, 0, 2, 1]);
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        let mut tunnel = vec![0; 54];
        (tunnel[12], tunnel[13], tunnel[20]) = (0x86, 0xdd, 4);
        (tunnel[14], tunnel[19]) = (0x60, 20);
        tunnel.extend_from_slice(&plain[14..]);
        let mut limited = tunnel.clone();
        (limited[19], limited[20]) = (28, 60);
        limited.splice(54..54, [4, 0, 4, 1, 4, 1, 1, 0]);
        let ours = Monitor::Address(Ipv4Addr::new(192, 0, 2, 1));
        let other = Monitor::Address(Ipv4Addr::new(192, 0, 2, 2));
        for frame in [&plain, &tagged, &tunnel, &limited] {
            assert!(ours.wants(frame) && Monitor::All.wants(frame));
            assert!(!other.wants(frame) && !Monitor::None.wants(frame));
            // A truncated frame causes no access out of bounds.
            for length in 0..frame.len() {
                let _ = ours.wants(&frame[..length]);
            }
        }
        tunnel[20] = 58;
        assert!(!ours.wants(&tunnel));
    }
}
