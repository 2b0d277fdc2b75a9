//! One end of a connection.

use carina_wire::Payload;
use carina_wire::dif::{Control, Pci, PduType, Window};

use alloc::collections::VecDeque;

use crate::config::ConnectionConfig;
use crate::congestion::CongestionControl;
use crate::counters::{Counters, Discard};
use crate::receiver::{NEVER, Receiver};
use crate::rtt::RttEstimator;
use crate::sender::Sender;
use crate::seq::{self, Random};

pub use crate::receiver::Delivered;

/// A PDU to send: what its PCI must say, and its user-data field.
#[derive(Debug)]
pub struct Transmit<P> {
    /// Data, control or rendezvous.
    pub kind: PduType,
    /// Data run flag.
    pub drf: bool,
    /// Sequence number of a data PDU as on the wire; 0 for others.
    pub seq: u64,
    /// What a control or rendezvous PDU says.
    pub control: Option<Control>,
    /// The user-data field of a data PDU.
    pub udf: Option<P>,
}

/// What receiving a PDU has led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// [`Connection::poll_deliver`] has something.
    pub is_deliverable: bool,
    /// [`Connection::poll_transmit`] may have something before the end of the burst.
    pub is_sendable: bool,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnEvent {
    /// It is over, and not in order.
    Failed(FailReason),
    /// Sequence numbers run out: a new connection should take over.
    Rollover,
    /// After [`Connection::finish`]: all was acknowledged, or sent when nothing is acknowledged.
    Drained,
    /// Nothing came for 2Δt: the next PDU must begin a run.
    PeerInactive,
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// No progress for R although PDUs were sent again.
    NoProgress,
    /// The other side began a new run although the old one has holes.
    RunBroken,
    /// No sequence number is left.
    Exhausted,
}

impl FailReason {
    /// In words for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            FailReason::NoProgress => "the other side has acknowledged nothing for too long",
            FailReason::RunBroken => "the other side lost its state before all had arrived",
            FailReason::Exhausted => "sequence numbers are used up",
        }
    }
}

/// One end of one EFCP connection. See the crate for the order of calls.
#[derive(Debug)]
pub struct Connection<P> {
    sender: Sender<P>,
    receiver: Receiver<P>,
    congestion: alloc::boxed::Box<dyn CongestionControl>,
    rtt: alloc::boxed::Box<dyn RttEstimator>,
    random: Random,
    counters: Counters,
    events: VecDeque<ConnEvent>,
    ctrl_bits: u8,
    ctrl_next: u64,
    ctrl_last: u64,
    is_finished: bool,
    is_drained: bool,
    is_failed: bool,
}

impl<P: Payload> Connection<P> {
    /// A connection with empty state. The seed decides initial sequence numbers only.
    #[must_use]
    pub fn new(now: u64, config: ConnectionConfig, seed: u64) -> Connection<P> {
        Connection {
            sender: Sender::new(now, &config),
            receiver: Receiver::new(&config),
            congestion: config.congestion,
            rtt: config.rtt,
            random: Random::new(seed),
            counters: Counters::default(),
            events: VecDeque::new(),
            ctrl_bits: config.ctrl_seq_bits,
            ctrl_next: 1,
            ctrl_last: 0,
            is_finished: false,
            is_drained: false,
            is_failed: false,
        }
    }

    /// Counters since birth.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// UDFs that [`Connection::write`] takes now. Grows after `receive` and `handle_timeout`.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.is_failed || self.is_finished {
            return 0;
        }
        self.sender.room()
    }

    /// Queues a UDF for sending.
    ///
    /// # Errors
    /// The UDF comes back when there is no room or no buffer, after `finish` and after a failure.
    pub fn write(&mut self, _now: u64, udf: P) -> Result<(), P> {
        if self.is_failed || self.is_finished {
            return Err(udf);
        }
        let written = self.sender.write(udf);
        if written.is_err() {
            self.counters.refused += 1;
        }
        written
    }

    /// Takes a PDU of this connection.
    ///
    /// # Errors
    /// Why it was discarded; counted already.
    pub fn receive(
        &mut self,
        now: u64,
        pci: &Pci,
        control: Option<&Control>,
        udf: Option<P>,
    ) -> Result<Received, Discard> {
        let taken = self.dispatch(now, pci, control, udf);
        if let Err(reason) = taken {
            self.counters.discard(reason);
            return Err(reason);
        }
        Ok(Received {
            is_deliverable: self.receiver.has_ready(),
            is_sendable: self.receiver.is_control_due() || !self.sender.queue.is_empty(),
        })
    }

    fn dispatch(
        &mut self,
        now: u64,
        pci: &Pci,
        control: Option<&Control>,
        udf: Option<P>,
    ) -> Result<(), Discard> {
        if self.is_failed {
            return Err(Discard::Failed);
        }
        match (pci.kind, control, udf) {
            (PduType::Data, _, Some(udf)) => {
                self.counters.received += 1;
                let counters = &mut self.counters;
                self.receiver
                    .on_data(now, pci.seq, pci.drf, pci.ecn, udf, counters)
            }
            (PduType::Control, Some(control), _) => self.on_control(now, control),
            (PduType::Rendezvous, control, _) => {
                self.counters.rendezvous_received += 1;
                let left = control
                    .and_then(|control| control.window)
                    .map(|w| w.my_left);
                self.receiver.on_rendezvous(now, left, &mut self.counters);
                Ok(())
            }
            _ => Err(Discard::Malformed),
        }
    }

    fn on_control(&mut self, _now: u64, control: &Control) -> Result<(), Discard> {
        self.counters.control_received += 1;
        self.ctrl_last = control.seq;
        if let Some(window) = control.window
            && let Some(right) = seq::extend(window.right, self.sender.next, self.sender.bits)
        {
            self.sender.right = self.sender.right.max(right);
        }
        if let Some(ack) = control.ack
            && let Some(next) = seq::extend(ack.next, self.sender.left, self.sender.bits)
        {
            while self.sender.left < next.min(self.sender.next) {
                self.sender.sent.pop_front();
                self.sender.left += 1;
            }
        }
        Ok(())
    }

    /// The next PDU to send. May change after anything but the other polls.
    #[must_use]
    pub fn poll_transmit(&mut self, now: u64) -> Option<Transmit<P>> {
        if self.is_failed {
            return None;
        }
        if self.receiver.is_control_due()
            && let Some(control) = self.control(now)
        {
            self.counters.control_sent += 1;
            return Some(Transmit {
                kind: PduType::Control,
                drf: false,
                seq: 0,
                control: Some(control),
                udf: None,
            });
        }
        if self.sender.queue.is_empty() {
            return None;
        }
        self.sender
            .begin_when_silent(now, &mut self.random, &mut self.counters);
        if !self.sender.is_open() {
            return None;
        }
        let (number, udf) = self.sender.take_new(now)?;
        self.counters.sent += 1;
        if self.sender.rolls_over() {
            self.events.push_back(ConnEvent::Rollover);
        }
        Some(Transmit {
            kind: PduType::Data,
            drf: number == self.sender.start,
            seq: seq::truncate(number, self.sender.bits),
            control: None,
            udf: Some(udf),
        })
    }

    fn control(&mut self, now: u64) -> Option<Control> {
        let (ack, window) = self.receiver.report(now)?;
        let seq = seq::truncate(self.ctrl_next, self.ctrl_bits);
        self.ctrl_next += 1;
        Some(Control {
            seq,
            last_seq: self.ctrl_last,
            ack,
            window: Some(Window {
                my_left: self.sender.left,
                my_right: self.sender.right,
                ..window
            }),
        })
    }

    /// The next UDF for the reader.
    #[must_use]
    pub fn poll_deliver(&mut self) -> Option<Delivered<P>> {
        let delivered = self.receiver.poll_deliver()?;
        self.counters.delivered += 1;
        Some(delivered)
    }

    /// The next thing that happened.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<ConnEvent> {
        self.events.pop_front()
    }

    /// When [`Connection::handle_timeout`] is due, in ns.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let at = self.receiver.next_timeout();
        (at != NEVER && !self.is_failed).then_some(at)
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: u64) {
        if self.receiver.handle_timeout(now, &mut self.counters) {
            self.events.push_back(ConnEvent::PeerInactive);
        }
    }

    /// The reader has room for this many UDFs, those in [`Connection::poll_deliver`] included.
    pub fn set_credit(&mut self, _now: u64, pdus: u32) {
        self.receiver.set_credit(pdus);
    }

    /// The burst is over: acknowledgements that bursts decide on become due, and what stays queued
    /// is kept.
    pub fn end_of_burst(&mut self, _now: u64) {
        self.sender.end_of_burst(&mut self.counters);
        self.receiver.end_of_burst(&mut self.counters);
    }

    /// No more will be written. [`ConnEvent::Drained`] tells when all is through.
    pub fn finish(&mut self, _now: u64) {
        self.is_finished = true;
    }

    /// All that was written was acknowledged, or sent when nothing is acknowledged.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.sender.queue.is_empty() && self.sender.sent.is_empty()
    }

    /// Replaces the policy of congestion control.
    pub fn set_congestion(&mut self, policy: alloc::boxed::Box<dyn CongestionControl>) {
        self.congestion = policy;
    }

    /// Replaces the policy of round-trip time estimation.
    pub fn set_rtt(&mut self, policy: alloc::boxed::Box<dyn RttEstimator>) {
        self.rtt = policy;
    }
}
