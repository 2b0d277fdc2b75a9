//! Packets from flows to the kernel: each is checked against the prefix of its sender.

use carina_client::{Error, FlowReceiver, FlowSender};
use carina_netdev::{
    MAC_HEADER_BYTES, TAP_BURST, TapResult, VNET_HEADER_BYTES, VnetHeader, VnetSegments,
};
use carina_sys::Interest;

use super::inbox::Accepted;
use super::slots::BURST;
use super::{INCOMING, Worker, token};
use crate::admission::Admission;
use crate::counters::Reason;
use crate::cut::cut;
use crate::error::IpError;
use crate::join::Joint;
use crate::packet::{Packet, clamp_mss};
use crate::prefix::IpPrefix;
use crate::sdu;
use crate::status::FlowStatus;

/// A flow that another member allocated.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) receiver: FlowReceiver,
    /// Nothing is sent on the flow, but it ends when both halves are dropped.
    _sender: FlowSender,
    _admission: Admission,
    local: IpPrefix,
    pub(super) remote: IpPrefix,
    packets: u64,
    bytes: u64,
}

/// A packet in a slot that goes to the kernel.
pub(super) struct Arrived {
    slot: usize,
    header: VnetHeader,
    from: usize,
    to: usize,
    /// How packets behind this one are joined to it.
    joint: Option<Joint>,
}

/// How far [`Worker::move_burst`] came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// All SDUs of the flow that had arrived were read.
    All,
    /// As many packets as a burst has; more may have arrived.
    Burst,
    /// The flow has ended.
    Ended,
}

/// The outcome of [`Worker::pass_direct`] for the next SDU of a flow.
pub(super) enum Passed {
    /// The packet was given to the kernel, or dropped.
    Done,
    /// The SDU must be copied.
    Stays,
    /// The SDU passes when the packets before it have been written.
    Later,
    /// No SDU has arrived.
    Empty,
    /// The flow has ended.
    Ended,
}

impl Incoming {
    pub(super) fn status(&self) -> FlowStatus {
        FlowStatus {
            local: self.local,
            remote: self.remote,
            class: None,
            is_outgoing: false,
            is_open: true,
            packets: self.packets,
            bytes: self.bytes,
            waiting: 0,
        }
    }
}

impl Worker {
    /// Reads a flow of another member from now on.
    pub(crate) fn adopt(&mut self, accepted: Accepted) {
        let Accepted {
            flow,
            local,
            remote,
            admission,
        } = accepted;
        // A number is used again only after 4 billion flows.
        self.last_incoming = self.last_incoming.wrapping_add(1);
        let id = self.last_incoming;
        let (sender, mut receiver) = flow.split();
        let watched = receiver.poll_fd().is_ok_and(|fd| {
            let added = self.epoll.add(fd, token(INCOMING, id), Interest::Read);
            added.is_ok()
        });
        if !watched {
            return;
        }
        // What has arrived already is reported by no event.
        if !matches!(receiver.arm(), Ok(true)) {
            self.unread.insert(id);
        }
        let incoming = Incoming {
            receiver,
            _sender: sender,
            _admission: admission,
            local,
            remote,
            packets: 0,
            bytes: 0,
        };
        self.incoming.insert(id, incoming);
    }

    /// Moves a burst of packets from a flow to the kernel.
    pub(super) fn receive(&mut self, id: u32) -> Result<(), IpError> {
        let Some(mut incoming) = self.incoming.remove(&id) else {
            return Ok(());
        };
        let taken = self.move_burst(&mut incoming)?;
        if taken == Taken::Ended {
            return Ok(());
        }
        if taken == Taken::Burst || !matches!(incoming.receiver.arm(), Ok(true)) {
            self.unread.insert(id);
        }
        self.incoming.insert(id, incoming);
        Ok(())
    }

    fn move_burst(&mut self, incoming: &mut Incoming) -> Result<Taken, IpError> {
        let mut arrived = Vec::with_capacity(BURST);
        for _ in 0..BURST {
            let passed = match self.pass_direct(incoming, arrived.is_empty())? {
                Passed::Done => continue,
                Passed::Stays => self.take_sdu(incoming, &mut arrived)?,
                // Packets that were copied go to the kernel before the next one that was not.
                Passed::Later => {
                    self.write(incoming, &mut arrived)?;
                    continue;
                }
                Passed::Empty => Some(Taken::All),
                Passed::Ended => Some(Taken::Ended),
            };
            if let Some(taken) = passed {
                self.write(incoming, &mut arrived)?;
                return Ok(taken);
            }
        }
        self.write(incoming, &mut arrived)?;
        Ok(Taken::Burst)
    }

    /// Takes an SDU from a flow into a slot. Returns `None` unless the burst ends with it.
    fn take_sdu(
        &mut self,
        incoming: &mut Incoming,
        arrived: &mut Vec<Arrived>,
    ) -> Result<Option<Taken>, IpError> {
        let slot = arrived.len();
        let bytes = self.slots.slot(slot);
        let length = match incoming.receiver.try_recv(bytes) {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(Some(Taken::All)),
            Err(Error::SduTooLarge { .. }) => {
                self.counters.drop(Reason::BadSdu);
                return Ok(None);
            }
            Err(_) => return Ok(Some(Taken::Ended)),
        };
        match self.judge(incoming.remote, slot, length) {
            Ok(packet) if must_cut(&packet.header, self.tap.offload().datagrams) => {
                return self.write_cut(incoming, arrived, &packet);
            }
            Ok(packet) => self.push_arrived(arrived, packet),
            Err(reason) => self.count_refused(reason),
        }
        Ok(None)
    }

    /// Joins a packet to the one before it, or appends it.
    fn push_arrived(&mut self, arrived: &mut Vec<Arrived>, mut packet: Arrived) {
        let has_work = packet.header.checksum.is_some() || packet.header.segments.is_some();
        if has_work {
            return arrived.push(packet);
        }
        if let Some(run) = arrived.last_mut()
            && let Some(joint) = &mut run.joint
        {
            let (first, next) = self.slots.two(run.slot, packet.slot);
            let next = &next[packet.from..packet.to];
            if let Some(length) = joint.join(&mut first[run.from..], run.to - run.from, next) {
                run.to = run.from + length;
                self.counters.packets_joined += 1;
                return;
            }
        }
        let bytes = &self.slots.slot(packet.slot)[packet.from..packet.to];
        packet.joint = Joint::begin(bytes, self.tap.offload().datagrams);
        arrived.push(packet);
    }

    /// Checks the SDU in a slot.
    fn judge(&mut self, remote: IpPrefix, slot: usize, length: usize) -> Result<Arrived, Reason> {
        let bytes = self.slots.slot(slot);
        let sdu = sdu::read(&bytes[..length]).ok_or(Reason::BadSdu)?;
        let packet = Packet::read(sdu.packet).ok_or(Reason::BadSdu)?;
        self.router.check_incoming(remote, &packet)?;
        let from = length - sdu.packet.len();
        let header: VnetHeader = sdu.header;
        let lacks_checksum = header.checksum.is_some();
        if clamp_mss(&mut bytes[from..length], self.link.mtu, lacks_checksum) {
            self.counters.mss_clamped += 1;
        }
        Ok(Arrived {
            slot,
            header,
            from,
            to: length,
            joint: None,
        })
    }

    /// Counts a packet that a peer may not send, or an SDU without a packet.
    pub(super) fn count_refused(&mut self, reason: Reason) {
        if reason == Reason::SourceNotPeers {
            // The directory may have changed.
            self.link.directory.ask();
        }
        self.counters.drop(reason);
    }

    /// Gives packets to the kernel, and empties the list.
    fn write(
        &mut self,
        incoming: &mut Incoming,
        arrived: &mut Vec<Arrived>,
    ) -> Result<(), IpError> {
        if arrived.is_empty() {
            return Ok(());
        }
        debug_assert!(arrived.len() <= TAP_BURST, "one call writes all");
        for packet in arrived.iter_mut() {
            let run = &mut self.slots.slot(packet.slot)[packet.from..packet.to];
            let joined = packet.joint.and_then(|joint| joint.finish(run));
            packet.header = joined.unwrap_or(packet.header);
        }
        let headers: Vec<_> = arrived.iter().map(|packet| packet.header.bytes()).collect();
        let slots: Vec<&[u8]> = self.slots.all().collect();
        let packets = arrived.iter().zip(&headers);
        let packets =
            packets.map(|(packet, header)| (header, &slots[packet.slot][packet.from..packet.to]));
        let results: Vec<TapResult> = self.tap.write(packets).collect();
        for (result, packet) in results.into_iter().zip(&*arrived) {
            let count = packet.joint.map_or(1, |joint| joint.count());
            self.count_written(incoming, result, count, packet.to - packet.from)?;
        }
        arrived.clear();
        Ok(())
    }

    /// Cuts a packet of several datagrams, which this kernel does not take, and gives the datagrams
    /// to the kernel behind the packets that have arrived before.
    fn write_cut(
        &mut self,
        incoming: &mut Incoming,
        arrived: &mut Vec<Arrived>,
        packet: &Arrived,
    ) -> Result<Option<Taken>, IpError> {
        self.write(incoming, arrived)?;
        let bytes = &self.slots.slot(packet.slot)[packet.from..packet.to];
        let mut slot = [&[0; MAC_HEADER_BYTES][..], bytes].concat();
        let mut results = Vec::new();
        let header = [0; VNET_HEADER_BYTES];
        let cut = cut(&packet.header, &mut slot, |datagram| {
            let written = self.tap.write(std::iter::once((&header, datagram)));
            results.extend(written.map(|result| (result, datagram.len())));
        });
        for (result, length) in results {
            self.count_written(incoming, result, 1, length)?;
        }
        match cut {
            Ok(()) => self.counters.packets_cut += 1,
            Err(_) => self.counters.drop(Reason::BadSdu),
        }
        Ok(None)
    }

    /// Counts packets, of so many bytes together, that were given to the kernel as one.
    pub(super) fn count_written(
        &mut self,
        incoming: &mut Incoming,
        result: TapResult,
        packets: usize,
        bytes: usize,
    ) -> Result<(), IpError> {
        incoming.packets += packets as u64;
        incoming.bytes += bytes as u64;
        match result {
            TapResult::Done(_) => {
                self.counters.packets_received += packets as u64;
                self.counters.bytes_received += bytes as u64;
            }
            TapResult::Down => self.counters.drop_many(Reason::InterfaceDown, packets),
            TapResult::Gone => return Err(self.removed()),
            TapResult::Later | TapResult::Refused => {
                self.counters.drop_many(Reason::KernelRefused, packets);
            }
        }
        Ok(())
    }
}

/// Whether the kernel does not take a packet of several datagrams.
pub(super) fn must_cut(header: &VnetHeader, takes_datagrams: bool) -> bool {
    let is_udp = matches!(header.segments, Some((VnetSegments::Udp, ..)));
    is_udp && !takes_datagrams
}
