//! **hop**: swaps the MAC addresses of each frame, and decrements the TTL or hop limit of its IP
//! packet.
//!
//! For IPv4 the app decrements the TTL and updates the header checksum (RFC 1624); for IPv6 it
//! decrements the hop limit. It drops a packet whose TTL or hop limit is 0 or 1, without an ICMP
//! message. (RFC 1812 §5.3.1, RFC 8200 §3)
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: none
//! - counters: `drop_hop_limit`: packets whose TTL or hop limit is used up; `drop_not_ip`: frames
//!   in which no IPv4 or IPv6 header follows the MAC header
//! - cost: loads and stores of 16 bytes in the first cache line

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports, WhenFull};
use serde::{Deserialize, Serialize};

/// The configuration of the app `hop`, which swaps the MAC addresses of frames, and decrements the
/// TTL or hop limit of their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HopConfig {}

/// The running app `hop`: swaps the MAC addresses of frames, and decrements the TTL or hop limit of
/// their packets.
pub struct Hop {
    hop_limit: Counter,
    not_ip: Counter,
}

impl AppConfig for HopConfig {
    const KIND: &'static str = "hop";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::Waits;

    type App = Hop;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Hop, AppError> {
        Ok(Hop {
            hop_limit: context.counter("drop_hop_limit"),
            not_ip: context.counter("drop_not_ip"),
        })
    }
}

impl FrameApp for Hop {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let (mut hop_limit, mut not_ip) = (0, 0);
        ports.forward(0, 0, |frame| match hop(frame.bytes_mut()) {
            Ok(()) => true,
            Err(Refusal::HopLimit) => {
                hop_limit += 1;
                false
            }
            Err(Refusal::NotIp) => {
                not_ip += 1;
                false
            }
        });
        self.hop_limit.add(hop_limit);
        self.not_ip.add(not_ip);
    }
}

/// Why a frame is dropped.
enum Refusal {
    HopLimit,
    NotIp,
}

#[inline]
fn hop(frame: &mut [u8]) -> Result<(), Refusal> {
    // The length of an Ethernet and an IPv4 header; an Ethernet frame with IPv6 is never shorter.
    let head = frame.first_chunk_mut::<34>().ok_or(Refusal::NotIp)?;
    match (head[12], head[13], head[14]) {
        (0x08, 0x00, 0x45..=0x4f) => {
            let ttl = head[22];
            if ttl <= 1 {
                return Err(Refusal::HopLimit);
            }
            head[22] = ttl - 1;
            let sum = u32::from(u16::from_be_bytes([head[24], head[25]])) + 0x0100;
            // One's complement addition. The sum of a header that is not all zeros is never 0xffff.
            let sum = (sum + u32::from(sum >= 0xffff)) as u16;
            [head[24], head[25]] = sum.to_be_bytes();
        }
        (0x86, 0xdd, 0x60..=0x6f) => {
            let limit = head[21];
            if limit <= 1 {
                return Err(Refusal::HopLimit);
            }
            head[21] = limit - 1;
        }
        _ => return Err(Refusal::NotIp),
    }
    swap_addresses(head);
    Ok(())
}

/// Swaps the two MAC addresses in the first 12 bytes, in two registers.
#[inline]
fn swap_addresses(head: &mut [u8; 34]) {
    let Some((first, rest)) = head.split_first_chunk_mut::<8>() else {
        return;
    };
    let Some(second) = rest.first_chunk_mut::<4>() else {
        return;
    };
    let (low, high) = (u64::from_le_bytes(*first), u32::from_le_bytes(*second));
    let swapped = low >> 48 | u64::from(high) << 16 | low << 48;
    *first = swapped.to_le_bytes();
    *second = ((low >> 16) as u32).to_le_bytes();
}
