//! How an hv app handles its device: the link's state, corrupt rings, and outgoing control
//! messages.

use carina_engine::counters::Value;
use carina_ring::{Corrupt, Refused};
use carina_time::Instant;
use carina_vmpi::hl::Violation;
use carina_vmpi::ll::{DownReason, LinkState};
use carina_wire::pcapng::Direction;
use carina_wire::vmpi::{Channel, DataHeader, HEADER_BYTES};

use super::{CONTROL_ROOM, Hv};

impl Hv {
    /// Follows the state of the device's link, and processes the endpoint's timers.
    pub(super) fn follow_link(&mut self, now: Instant) {
        match self.device.link(now.as_nanos()) {
            LinkState::Up if !self.is_connected => {
                self.is_connected = true;
                tracing::info!(target: "carina::shim::hv", ipcp = %self.ipcp, "region attached");
                self.hl.link_up(now);
            }
            LinkState::Up => {}
            LinkState::Down(reason) => {
                if self.is_connected {
                    self.disconnected();
                    tracing::info!(target: "carina::shim::hv", ipcp = %self.ipcp, %reason, "region lost");
                    self.hl.link_down(reason.code(), &reason.to_string());
                }
            }
        }
        if let Err(violation) = self.hl.handle_timeout(now) {
            self.give_up(&violation);
        }
    }

    /// Notes that the rings are reset: nothing of the old rings may be published or released any
    /// more.
    pub(super) fn disconnected(&mut self) {
        self.is_connected = false;
        self.has_read = false;
        self.has_written = false;
    }

    /// Handles a violation of the protocol by the peer, after which the endpoint has ended all
    /// flows: resets the device.
    pub(super) fn give_up(&mut self, violation: &Violation) {
        self.row.add(
            match violation {
                Violation::CreditOverrun { .. } => Value::DropOverrun,
                _ => Value::DropMalformed,
            },
            1,
        );
        let (code, reason) = (violation.code(), violation.to_string());
        tracing::warn!(target: "carina::shim::hv", ipcp = %self.ipcp, reason, "peer cut off");
        self.disconnected();
        let _ = self
            .device
            .fail(self.now.as_nanos(), DownReason::Violation { code, reason });
    }

    /// Handles a corrupt ring: the peer has corrupted it, or has just restarted.
    pub(super) fn ring_broke(&mut self, corrupt: Corrupt) {
        let reason = self
            .device
            .fail(self.now.as_nanos(), DownReason::Corrupt(corrupt));
        self.disconnected();
        if let DownReason::Corrupt(_) = reason {
            self.row.add(Value::DropMalformed, 1);
            tracing::warn!(target: "carina::shim::hv", ipcp = %self.ipcp, %reason, "peer cut off");
            self.hl.fail(reason.code(), &reason.to_string());
        } else {
            self.hl.link_down(reason.code(), &reason.to_string());
        }
    }

    /// Moves pending control messages into the device while there is room.
    pub(super) fn send_control(&mut self) {
        while self.hl.has_control() && self.free_bytes() >= CONTROL_ROOM {
            let mut control = std::mem::take(&mut self.control);
            if !self.hl.poll_control(&mut control) {
                self.control = control;
                return;
            }
            let header = DataHeader {
                channel: Channel::CONTROL,
                more: false,
            }
            .encode();
            let sent = match self.device.reserve(HEADER_BYTES + control.len()) {
                Ok(mut slot) => {
                    slot.write_at(0, &header);
                    slot.write_at(HEADER_BYTES, &control);
                    slot.commit(false);
                    Ok(())
                }
                Err(refused) => Err(refused),
            };
            self.has_written = true;
            match sent {
                Ok(()) => {
                    self.row.add(Value::ControlOut, 1);
                    self.note_control(Direction::Out, &control);
                }
                // The message is lost. If the link continued, the two endpoints would disagree.
                Err(refused) => return self.refused(refused),
            }
            self.control = control;
        }
    }

    /// Copies a control message to the captures.
    pub(super) fn note_control(&self, direction: Direction, message: &[u8]) {
        if self.taps.is_on() {
            let header = DataHeader {
                channel: Channel::CONTROL,
                more: false,
            }
            .encode();
            let record = [&header[..], message].concat();
            self.taps.note_bytes(direction, &record);
        }
    }

    /// Free space in the device's ring; 0 while the link is down. If the peer has corrupted its
    /// index, this takes the link down, even while nothing is sent: otherwise the link would seem
    /// up but carry nothing.
    pub(super) fn free_bytes(&mut self) -> usize {
        if !self.is_connected {
            return 0;
        }
        match self.device.free_bytes() {
            Ok(free) => free,
            Err(corrupt) => {
                self.ring_broke(corrupt);
                0
            }
        }
    }

    /// Handles a record that the device refused although there was room: the peer has moved its
    /// index back.
    pub(super) fn refused(&mut self, refused: Refused) {
        match refused {
            Refused::Corrupt(corrupt) => self.ring_broke(corrupt),
            other => {
                let (code, reason) = ("device-ring", format!("no room for a record: {other}"));
                self.hl.fail(code, &reason);
                self.disconnected();
                let _ = self
                    .device
                    .fail(self.now.as_nanos(), DownReason::Violation { code, reason });
            }
        }
    }
}
