//! **icmp_echo**: answers ICMP echo requests for an IPv4 address (RFC 792), and passes all other
//! frames.
//!
//! - inputs, outputs: `south`, where requests arrive, and `north`. Requests for the address are
//!   answered to `south`. Other frames from `south` go to `north`, and all frames from `north` go
//!   to `south`
//! - configuration: `address`: an IPv4 address
//! - counters: `answered`; `drop_bad_checksum`: requests for the address with a wrong IP or ICMP
//!   checksum; `drop_fragment`: fragments of requests for the address
//! - cost: one comparison of 4 bytes; for a request, a sum over its bytes

use std::net::Ipv4Addr;

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports};
use carina_wire::inet::{Ipv4Error, Ipv4Header, PROTOCOL_ICMP, checksum};
use serde::{Deserialize, Serialize};

/// The configuration of the app `icmp_echo`, which answers ICMP echo requests for an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IcmpEchoConfig {
    /// The address for which echo requests are answered.
    pub address: Ipv4Addr,
}

/// The running app `icmp_echo`: answers ICMP echo requests for an IPv4 address.
pub struct IcmpEcho {
    address: [u8; 4],
    answered: Counter,
    bad_checksum: Counter,
    fragment: Counter,
}

impl AppConfig for IcmpEchoConfig {
    const KIND: &'static str = "icmp_echo";
    const INPUTS: PortList = PortList::Named(&[Port::new("south"), Port::optional("north")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::new("south"), Port::optional("north")]);

    type App = IcmpEcho;

    fn build(&self, context: &mut AppContext<'_>) -> Result<IcmpEcho, AppError> {
        Ok(IcmpEcho {
            address: self.address.octets(),
            answered: context.counter("answered"),
            bad_checksum: context.counter("drop_bad_checksum"),
            fragment: context.counter("drop_fragment"),
        })
    }

    fn can_apply(&self, _old: &IcmpEchoConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut IcmpEcho) {
        app.address = self.address.octets();
    }
}

const SOUTH: usize = 0;
const NORTH: usize = 1;

/// What [`answer`] found in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The frame is not an echo request for the address.
    Other,
    /// The frame was an echo request, and is now the reply.
    Answered,
    /// An echo request with a wrong IP or ICMP checksum.
    BadChecksum,
    /// A fragment of ICMP to the address.
    Fragment,
}

impl FrameApp for IcmpEcho {
    fn push(&mut self, ports: &mut Ports<'_>) {
        ports.each(SOUTH, |mut frame, ports| {
            match answer(frame.bytes_mut(), self.address) {
                Found::Other => ports.transmit(NORTH, frame),
                Found::BadChecksum => self.bad_checksum.add(1),
                Found::Fragment => self.fragment.add(1),
                Found::Answered => {
                    self.answered.add(1);
                    ports.transmit(SOUTH, frame);
                }
            }
        });
        ports.forward(NORTH, SOUTH, |_| true);
    }
}

/// Turns an echo request for `address` into its reply, in place. Leaves any other frame unchanged.
pub fn answer(frame: &mut [u8], address: [u8; 4]) -> Found {
    let is_ours = frame
        .get(12..15)
        .is_some_and(|kind| kind[..2] == [8, 0] && kind[2] >> 4 == 4)
        && frame.get(23) == Some(&PROTOCOL_ICMP)
        && frame.get(30..34) == Some(&address);
    if !is_ours {
        return Found::Other;
    }
    let (ether, packet) = frame.split_at_mut(14);
    let header = match Ipv4Header::decode(packet) {
        Ok(header) => header,
        Err(Ipv4Error::Checksum) => return Found::BadChecksum,
        Err(_) => return Found::Other,
    };
    if header.is_fragment {
        return Found::Fragment;
    }
    let (head, message) = packet[..header.total_bytes].split_at_mut(header.header_bytes);
    // Echo request: type 8, code 0, checksum, identifier, sequence number. (RFC 792)
    if message.len() < 8 || message[..2] != [8, 0] {
        return Found::Other;
    }
    if checksum(message, 0) != 0 {
        return Found::BadChecksum;
    }
    message[0] = 0;
    // The type in the upper half of the first word changes from 8 to 0. (RFC 1624)
    let sum = u32::from(u16::from_be_bytes([message[2], message[3]])) + 0x0800;
    let sum = (sum + (sum >> 16)) as u16;
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    head.copy_within(12..16, 16);
    head[12..16].copy_from_slice(&address);
    head[8] = REPLY_TTL;
    head[10..12].fill(0);
    let sum = checksum(head, 0);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    let (to, from) = ether[..12].split_at_mut(6);
    to.swap_with_slice(from);
    Found::Answered
}

/// TTL of a reply. (RFC 1700, "IP time to live parameter")
const REPLY_TTL: u8 = 64;
