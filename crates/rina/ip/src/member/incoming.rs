//! Packets from flows to the kernel: each is checked against the prefix of its sender.

use std::time::{Duration, Instant};

use carina_client::{Error, FlowReceiver, FlowRequest, FlowSender};
use carina_netdev::{TAP_BURST, TapResult, VNET_HEADER_BYTES, VnetHeader};
use carina_sys::Interest;

use super::slots::BURST;
use super::{EarlyRequest, INCOMING, Member, token};
use crate::counters::Reason;
use crate::error::IpError;
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
    local: IpPrefix,
    pub(super) remote: IpPrefix,
    packets: u64,
    bytes: u64,
}

/// A packet in a slot that goes to the kernel.
pub(super) struct Arrived {
    slot: usize,
    header: [u8; VNET_HEADER_BYTES],
    from: usize,
    to: usize,
}

/// How far [`Member::move_burst`] came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// All SDUs of the flow that had arrived were read.
    All,
    /// As many packets as a burst has; more may have arrived.
    Burst,
    /// The flow has ended.
    Ended,
}

/// The outcome of [`Member::pass_direct`] for the next SDU of a flow.
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

impl Member {
    /// Answers the flow requests of a registration.
    pub(super) fn take_requests(&mut self, index: usize, now: Instant) -> Result<(), IpError> {
        loop {
            let Some(registration) = self.registrations.get_mut(index) else {
                return Ok(());
            };
            match registration.try_next_request() {
                Ok(None) => return Ok(()),
                Ok(Some(request)) => self.take_request(index, request, now),
                Err(source) => {
                    let name = registration.name().clone();
                    return Err(IpError::Ended { name, source });
                }
            }
        }
    }

    fn take_request(&mut self, registration: usize, request: FlowRequest, now: Instant) {
        let Some(remote) = IpPrefix::of_name(&request.remote) else {
            let reason = "the caller's name must be ip: and a prefix, such as ip:10.9.1.0/24";
            return self.deny(registration, &request, reason);
        };
        if !self.settings.may_have(remote) {
            let reason = "the setting `peers` does not allow the prefix of the caller";
            return self.deny(registration, &request, reason);
        }
        let of_remote = self.incoming.values().filter(|flow| flow.remote == remote);
        if self.incoming.len() >= INCOMING_MAX || of_remote.count() >= OF_MEMBER_MAX {
            return self.deny(registration, &request, "the member has too many flows");
        }
        match self.router.may_accept(remote) {
            Some(true) => self.accept(registration, &request, remote),
            Some(false) => {
                self.deny(
                    registration,
                    &request,
                    "the caller's name is registered here",
                );
            }
            None if self.early.len() >= EARLY_MAX => {
                self.deny(registration, &request, "too many callers are unknown");
            }
            None => {
                self.directory.ask();
                self.early.push(EarlyRequest {
                    registration,
                    request,
                    until: now + EARLY_FOR,
                });
            }
        }
    }

    /// Answers the requests of callers that the directory has now, and of those that it did not get
    /// in time.
    pub(super) fn answer_early(&mut self, now: Instant) {
        for early in std::mem::take(&mut self.early) {
            let remote = IpPrefix::of_name(&early.request.remote);
            let is_known = remote.is_some_and(|remote| self.router.may_accept(remote).is_some());
            if is_known {
                self.take_request(early.registration, early.request, now);
            } else if early.until <= now {
                let reason = "the caller's name is not registered in the DIF";
                self.deny(early.registration, &early.request, reason);
            } else {
                self.early.push(early);
            }
        }
    }

    fn deny(&mut self, registration: usize, request: &FlowRequest, reason: &str) {
        self.counters.flows_denied += 1;
        // If this fails, the registration has ended: its descriptor reports it.
        let _ = self.registrations[registration].refuse(request, reason);
    }

    fn accept(&mut self, index: usize, request: &FlowRequest, remote: IpPrefix) {
        let accepted = self.registrations[index].accept_request(request);
        let (Ok(flow), Some(local)) = (accepted, IpPrefix::of_name(&request.local)) else {
            self.counters.flows_denied += 1;
            return;
        };
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
                Passed::Stays => self.take_sdu(incoming, &mut arrived),
                // Packets that were copied go to the kernel before the next one that was not.
                Passed::Later => {
                    self.write(incoming, &arrived)?;
                    arrived.clear();
                    continue;
                }
                Passed::Empty => Some(Taken::All),
                Passed::Ended => Some(Taken::Ended),
            };
            if let Some(taken) = passed {
                self.write(incoming, &arrived)?;
                return Ok(taken);
            }
        }
        self.write(incoming, &arrived)?;
        Ok(Taken::Burst)
    }

    /// Takes an SDU from a flow into a slot. Returns `None` unless the burst ends with it.
    fn take_sdu(&mut self, incoming: &mut Incoming, arrived: &mut Vec<Arrived>) -> Option<Taken> {
        let slot = arrived.len();
        let bytes = self.slots.slot(slot);
        let length = match incoming.receiver.try_recv(bytes) {
            Ok(Some(length)) => length,
            Ok(None) => return Some(Taken::All),
            Err(Error::SduTooLarge { .. }) => {
                self.counters.drop(Reason::BadSdu);
                return None;
            }
            Err(_) => return Some(Taken::Ended),
        };
        let judged = self.judge(incoming.remote, slot, length);
        match judged {
            Ok(packet) => arrived.push(packet),
            Err(reason) => self.count_refused(reason),
        }
        None
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
        if clamp_mss(&mut bytes[from..length], self.mtu, lacks_checksum) {
            self.counters.mss_clamped += 1;
        }
        Ok(Arrived {
            slot,
            header: header.bytes(),
            from,
            to: length,
        })
    }

    /// Counts a packet that a peer may not send, or an SDU without a packet.
    pub(super) fn count_refused(&mut self, reason: Reason) {
        if reason == Reason::SourceNotPeers {
            // The directory may have changed.
            self.directory.ask();
        }
        self.counters.drop(reason);
    }

    /// Gives packets to the kernel.
    fn write(&mut self, incoming: &mut Incoming, arrived: &[Arrived]) -> Result<(), IpError> {
        if arrived.is_empty() {
            return Ok(());
        }
        debug_assert!(arrived.len() <= TAP_BURST, "one call writes all");
        let slots: Vec<&[u8]> = self.slots.all().collect();
        let packets = arrived
            .iter()
            .map(|packet| (&packet.header, &slots[packet.slot][packet.from..packet.to]));
        let results: Vec<TapResult> = self.interface.tap.write(packets).collect();
        for (result, packet) in results.into_iter().zip(arrived) {
            self.count_written(incoming, result, packet.to - packet.from)?;
        }
        Ok(())
    }

    /// Counts a packet of so many bytes that was given to the kernel.
    pub(super) fn count_written(
        &mut self,
        incoming: &mut Incoming,
        result: TapResult,
        bytes: usize,
    ) -> Result<(), IpError> {
        incoming.packets += 1;
        incoming.bytes += bytes as u64;
        match result {
            TapResult::Done(_) => {
                self.counters.packets_received += 1;
                self.counters.bytes_received += bytes as u64;
            }
            TapResult::Down => self.counters.drop(Reason::InterfaceDown),
            TapResult::Gone => return Err(IpError::Removed(self.settings.tun.clone())),
            TapResult::Later | TapResult::Refused => self.counters.drop(Reason::KernelRefused),
        }
        Ok(())
    }
}

/// Largest number of flows that other members may have to this one.
const INCOMING_MAX: usize = 4096;
/// Largest number of flows of one other member.
const OF_MEMBER_MAX: usize = 64;
/// Largest number of flow requests of unknown callers that wait.
const EARLY_MAX: usize = 64;
/// How long a request waits for the directory to get its caller.
const EARLY_FOR: Duration = Duration::from_secs(3);
