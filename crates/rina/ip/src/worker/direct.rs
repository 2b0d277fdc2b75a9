//! Long packets that are not copied between the kernel and the rings of flows: the kernel writes
//! the next packet into the ring of the flow that had the last long one, and reads packets that
//! arrive from the ring. Headers are judged as copies.

use std::os::fd::AsFd;
use std::time::Instant;

use carina_client::{FromFile, HEAD_BYTES, Passing, ToFile};
use carina_netdev::{MAC_HEADER_BYTES, TapResult, VNET_HEADER_BYTES, VnetHeader};

use super::Worker;
use super::incoming::{Incoming, Passed, must_cut};
use super::slots::{BURST, MESSAGE_BYTES_MAX};
use crate::counters::Reason;
use crate::error::IpError;
use crate::packet::{Packet, is_tcp_syn};
use crate::router::FlowId;
use crate::sdu;

/// The flow that had the last long packet.
#[derive(Debug)]
pub(super) struct Bulk {
    flow: FlowId,
    /// Number of packets since the last long one of the flow.
    others: u32,
}

/// The outcome of [`Worker::read_direct`].
enum Sent {
    /// The packet was sent or dropped.
    Done,
    /// No packet waits, or none may be read now.
    Nothing,
    /// Packets are read in bursts: no flow has long packets.
    InBursts,
}

impl Worker {
    /// Reads packets from the kernel and sends each.
    pub(super) fn read_packets(&mut self, now: Instant) -> Result<(), IpError> {
        for _ in 0..BURST {
            match self.read_direct(now)? {
                Sent::Done => {}
                Sent::Nothing => return Ok(()),
                Sent::InBursts => return self.read_burst(now),
            }
        }
        Ok(())
    }

    /// Notes the length of an SDU that was sent over a flow.
    pub(super) fn note_bulk(&mut self, flow: FlowId, length: usize) {
        if length >= LONG_BYTES && self.link.carried.whole_max >= MESSAGE_BYTES_MAX {
            self.bulk = Some(Bulk { flow, others: 0 });
        }
    }

    /// Reads the next packet of the kernel into the ring of the flow with long packets. A packet of
    /// another flow is copied.
    fn read_direct(&mut self, now: Instant) -> Result<Sent, IpError> {
        let Some(Bulk { flow: id, others }) = self.bulk.take() else {
            return Ok(Sent::InBursts);
        };
        let flow = self.outgoing.get_mut(&id);
        let Some(flow) = flow.filter(|_| others < OTHERS_MAX) else {
            return Ok(Sent::InBursts);
        };
        let Some(sender) = flow.idle_sender() else {
            return Ok(Sent::InBursts);
        };
        let sdu_max = sender.info().sdu_max.min(sender.piece_max() as u64);
        if sdu_max < MESSAGE_BYTES_MAX as u64 {
            return Ok(Sent::InBursts);
        }
        let router = &mut self.router;
        let is_of_flow = |head: &[u8], length: usize| {
            let parsed = packet_of(head, length);
            parsed.is_some_and(|packet| router.known_flow(&packet, now) == Some(id))
        };
        let tun = self.tap.as_fd();
        let outcome = sender.try_send_from(tun, self.slots.whole_message(), is_of_flow);
        self.bulk = Some(Bulk { flow: id, others });
        match outcome {
            Ok(FromFile::Sent(length)) => {
                flow.packets += 1;
                flow.bytes += length as u64;
                self.counters.packets_sent += 1;
                self.counters.bytes_sent += length as u64;
                let others = if length < LONG_BYTES { others + 1 } else { 0 };
                self.bulk = Some(Bulk { flow: id, others });
                Ok(Sent::Done)
            }
            Ok(FromFile::Kept(length)) => {
                let others = others + 1;
                self.bulk = Some(Bulk { flow: id, others });
                if length < VNET_HEADER_BYTES {
                    self.drop_packet(Reason::Malformed);
                    return Ok(Sent::Done);
                }
                let mut slots = std::mem::take(&mut self.slots);
                self.send_packet(slots.packet(0, length - VNET_HEADER_BYTES), now);
                self.slots = slots;
                Ok(Sent::Done)
            }
            Ok(FromFile::Empty) => Ok(Sent::Nothing),
            Ok(FromFile::Full) => {
                if flow.block() {
                    self.pause(now);
                    return Ok(Sent::Nothing);
                }
                Ok(Sent::Done)
            }
            Ok(FromFile::Failed(error)) => match TapResult::from(Err(error)) {
                TapResult::Gone => Err(self.removed()),
                _ => Ok(Sent::Nothing),
            },
            Err(_) => {
                self.bulk = None;
                self.end(id);
                Ok(Sent::Done)
            }
        }
    }

    /// Gives the next SDU of a flow to the kernel if the packet is long. `may_write`: all packets
    /// before it are with the kernel.
    pub(super) fn pass_direct(
        &mut self,
        incoming: &mut Incoming,
        may_write: bool,
    ) -> Result<Passed, IpError> {
        let (remote, router) = (incoming.remote, &self.router);
        let takes_datagrams = self.tap.offload().datagrams;
        let (mut refused, mut packet_bytes, mut is_later) = (None, 0, false);
        let judge = |room: &mut [u8], length: usize| {
            let copied = length.min(HEAD_BYTES);
            let head = &room[VNET_HEADER_BYTES..][..copied];
            if length < LONG_BYTES {
                return Passing::Stay;
            }
            let read = sdu::read_head(head, length).and_then(|(header, from)| {
                let packet = Packet::read_head(&head[from..], length - from)?;
                Some((header, from, packet))
            });
            let Some((header, from, packet)) = read else {
                refused = Some(Reason::BadSdu);
                return Passing::Drop;
            };
            if is_tcp_syn(&head[from..]) || must_cut(&header, takes_datagrams) {
                return Passing::Stay;
            }
            if let Err(reason) = router.check_incoming(remote, &packet) {
                refused = Some(reason);
                return Passing::Drop;
            }
            if !may_write {
                is_later = true;
                return Passing::Stay;
            }
            packet_bytes = length - from;
            // The kernel's header goes in front of the packet, in place of the peer's.
            room[from..from + VNET_HEADER_BYTES].copy_from_slice(&header.bytes());
            Passing::From(from)
        };
        let mut room = [0; VNET_HEADER_BYTES + HEAD_BYTES];
        let tun = self.tap.as_fd();
        let receiver = &mut incoming.receiver;
        let passed = receiver.try_recv_to(tun, &mut room, VNET_HEADER_BYTES, judge);
        Ok(match passed {
            Ok(ToFile::Written(result)) => {
                self.count_written(incoming, result.into(), 1, packet_bytes)?;
                Passed::Done
            }
            Ok(ToFile::Dropped) => {
                self.count_refused(refused.unwrap_or(Reason::BadSdu));
                Passed::Done
            }
            Ok(ToFile::Stayed) if is_later => Passed::Later,
            Ok(ToFile::Stayed) => Passed::Stays,
            Ok(ToFile::Empty) => Passed::Empty,
            Err(_) => Passed::Ended,
        })
    }
}

/// The packet in a message of the kernel that may be sent as it is: with a header that can be read,
/// and without a maximum segment size.
fn packet_of(head: &[u8], length: usize) -> Option<Packet> {
    let (header, packet) = head.split_first_chunk::<VNET_HEADER_BYTES>()?;
    VnetHeader::read(header)?;
    let parsed = Packet::read_head(packet, length.checked_sub(VNET_HEADER_BYTES)?)?;
    // In SDUs, headers have the byte order that this machine has too.
    (cfg!(target_endian = "little") && !is_tcp_syn(packet)).then_some(parsed)
}

/// Shortest SDU that is worth a system call of its own, in bytes.
const LONG_BYTES: usize = 4096;
/// Number of packets that are not long, after which packets are read in bursts again.
const OTHERS_MAX: u32 = 16;
const _: () = assert!(
    MAC_HEADER_BYTES > VNET_HEADER_BYTES,
    "a slot has space for the header"
);
