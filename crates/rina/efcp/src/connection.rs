//! One end of a connection: the two halves put together.

mod control;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::dif::{Control, Pci, PduType};

use crate::config::{ConnectionConfig, RateControl};
use crate::congestion::CongestionControl;
use crate::control_numbers::ControlNumbers;
use crate::counters::{Counters, Discard};
use crate::event::{ConnEvent, FailReason};
use crate::profile::EfcpProfile;
use crate::receiver::{Delivered, Receiver};
use crate::rtt::RttEstimator;
use crate::sender::Sender;
use crate::seq::{self, Random};

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

impl<P> Transmit<P> {
    fn without_data(kind: PduType, control: Control) -> Transmit<P> {
        Transmit {
            kind,
            drf: false,
            seq: 0,
            control: Some(control),
            udf: None,
        }
    }

    fn of_data(seq: u64, drf: bool, udf: P) -> Transmit<P> {
        Transmit {
            kind: PduType::Data,
            drf,
            seq,
            control: None,
            udf: Some(udf),
        }
    }
}

/// What receiving a PDU has led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// [`Connection::poll_deliver`] has something.
    pub is_deliverable: bool,
    /// [`Connection::poll_transmit`] may have something before the end of the burst.
    pub is_sendable: bool,
}

/// One end of one EFCP connection. See the crate for the order of calls.
#[derive(Debug)]
pub struct Connection<P> {
    sender: Sender<P>,
    receiver: Receiver<P>,
    random: Random,
    counters: Counters,
    events: VecDeque<ConnEvent>,
    numbers: ControlNumbers,
    profile: EfcpProfile,
    is_finished: bool,
    is_drained: bool,
    is_failed: bool,
}

impl<P: Payload> Connection<P> {
    /// A connection with empty state. The seed decides initial sequence numbers only.
    #[must_use]
    pub fn new(now: Instant, config: ConnectionConfig, seed: u64) -> Connection<P> {
        let (profile, receiver) = (config.profile, Receiver::new(&config));
        let numbers = ControlNumbers::new(config.ctrl_seq_bits, &profile);
        let (mut sender, mut random) = (Sender::new(now, config), Random::new(seed));
        sender.prepare(&mut random);
        Connection {
            receiver,
            numbers,
            sender,
            random,
            profile,
            counters: Counters::default(),
            events: VecDeque::new(),
            is_finished: false,
            is_drained: false,
            is_failed: false,
        }
    }

    /// Begins the first run with this number.
    #[cfg(test)]
    pub(crate) fn begin_with(&mut self, number: u64) {
        self.sender.prepared = Some(number);
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
    pub fn write(&mut self, _now: Instant, udf: P) -> Result<(), P> {
        if self.is_failed || self.is_finished {
            return Err(udf);
        }
        let written = self.sender.write(udf);
        if written.is_err() {
            self.counters.refused += 1;
        }
        written
    }

    /// As [`Connection::write`], but a UDF that nothing holds back does not wait in the queue: it
    /// comes back as the PDU to send now. Everything else to send comes from
    /// [`Connection::poll_transmit`] as ever, at the end of the burst at the latest.
    ///
    /// # Errors
    /// Those of `write`.
    #[inline]
    pub fn write_through(&mut self, now: Instant, udf: P) -> Result<Option<Transmit<P>>, P> {
        let is_first = !self.sender.has_work() && !self.receiver.is_control_due();
        self.write(now, udf)?;
        Ok(if is_first { self.next_data(now) } else { None })
    }

    /// Takes a PDU of this connection.
    ///
    /// # Errors
    /// Why it was discarded; counted already.
    pub fn receive(
        &mut self,
        now: Instant,
        pci: &Pci,
        control: Option<&Control>,
        udf: Option<P>,
    ) -> Result<Received, Discard> {
        let taken = self.dispatch(now, pci, control, udf);
        if let Some(reason) = self.receiver.broken {
            self.fail(reason);
        }
        if let Err(reason) = taken {
            self.counters.discard(reason);
            return Err(reason);
        }
        Ok(Received {
            is_deliverable: self.receiver.has_ready(),
            is_sendable: self.receiver.is_control_due() || self.sender.has_work(),
        })
    }

    fn dispatch(
        &mut self,
        now: Instant,
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
                let window = control.and_then(|control| control.window);
                // Its window is closed: all below the right edge was sent.
                let sent = window.map(|window| {
                    if self.profile.selective {
                        window.my_left
                    } else {
                        window.my_right
                    }
                });
                self.receiver.on_rendezvous(now, sent, &mut self.counters);
                Ok(())
            }
            _ => Err(Discard::Malformed),
        }
    }

    /// The next PDU to send. May change after anything but the other polls.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<P>> {
        if self.is_failed {
            return None;
        }
        if let Some(control) = self.control(now) {
            return Some(control);
        }
        let next = if self.sender.has_work() {
            self.next_data(now)
        } else {
            None
        };
        if next.is_none() {
            self.sender.watch_window(now);
            self.check_drained();
            return self.rendezvous(now);
        }
        next
    }

    /// A PDU to send again, or a new one.
    fn next_data(&mut self, now: Instant) -> Option<Transmit<P>> {
        let sender = &mut self.sender;
        if !sender.takes_tokens(now) {
            return None;
        }
        let bits = sender.bits;
        if sender.is_reliable && sender.has_flight() {
            let lost = sender.take_lost(now, &mut self.counters);
            if let Some((number, udf)) = lost {
                let drf = sender.has_flag(number);
                return Some(Transmit::of_data(seq::truncate(number, bits), drf, udf));
            }
        }
        if sender.queued() == 0 {
            return None;
        }
        let numbers = &mut self.numbers;
        sender.begin_when_silent(now, &mut self.random, numbers, &mut self.counters);
        let Some((number, udf)) = sender.take_new(now) else {
            if sender.is_exhausted {
                self.fail(FailReason::Exhausted);
            }
            return None;
        };
        let drf = sender.has_flag(number);
        if sender.is_behind_wrap(number) {
            self.numbers.on_own_run();
        }
        self.counters.sent += 1;
        if self.sender.rolls_over() {
            self.events.push_back(ConnEvent::Rollover);
        }
        Some(Transmit::of_data(seq::truncate(number, bits), drf, udf))
    }

    fn fail(&mut self, reason: FailReason) {
        if !self.is_failed {
            self.is_failed = true;
            self.sender.clear();
            self.events.push_back(ConnEvent::Failed(reason));
        }
    }

    fn check_drained(&mut self) {
        if self.is_finished && !self.is_drained && !self.is_failed && self.sender.is_drained() {
            self.is_drained = true;
            self.events.push_back(ConnEvent::Drained);
        }
    }

    /// [`Connection::poll_deliver`] has something.
    #[inline]
    #[must_use]
    pub fn is_deliverable(&self) -> bool {
        self.receiver.has_ready()
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

    /// When [`Connection::handle_timeout`] is due, in ns. After it, no time up to `now` is due any
    /// longer, whether or not what became due was taken with [`Connection::poll_transmit`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let at = self.receiver.next_timeout().min(self.sender.next_timeout());
        (at != Instant::MAX && !self.is_failed).then_some(at)
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_failed {
            return;
        }
        if self.sender.handle_timeout(now, &mut self.counters) {
            self.fail(FailReason::NoProgress);
        }
        if self.receiver.handle_timeout(now, &mut self.counters) {
            self.events.push_back(ConnEvent::PeerInactive);
        }
        if let Some(reason) = self.receiver.broken {
            self.fail(reason);
        }
    }

    /// The reader has room for this many UDFs, those in [`Connection::poll_deliver`] included.
    pub fn set_credit(&mut self, _now: Instant, pdus: u32) {
        self.receiver.set_credit(pdus);
    }

    /// The burst is over: acknowledgements that bursts decide on become due, and what stays queued
    /// is kept.
    pub fn end_of_burst(&mut self, _now: Instant) {
        self.sender.end_of_burst(&mut self.counters);
        self.receiver.end_of_burst(&mut self.counters);
        if let Some(reason) = self.receiver.broken {
            self.fail(reason);
        }
    }

    /// No more will be written. [`ConnEvent::Drained`] follows when all is through.
    pub fn finish(&mut self, _now: Instant) {
        self.is_finished = true;
        self.check_drained();
    }

    /// All that was written was acknowledged, or sent when nothing is acknowledged.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.sender.is_drained()
    }

    /// The rate that this side's receiver permits from now on. Without effect on a connection
    /// without flow control by rate.
    pub fn set_rate(&mut self, now: Instant, rate: RateControl) {
        self.receiver.set_rate(now, rate);
    }

    /// Replaces the policy of congestion control; the new one begins with its initial window.
    pub fn set_congestion(&mut self, policy: Box<dyn CongestionControl>) {
        self.sender.congestion = policy;
    }

    /// Replaces the policy of round-trip time estimation; it begins without samples.
    pub fn set_rtt(&mut self, policy: Box<dyn RttEstimator>) {
        self.sender.rtt = policy;
    }

    /// True while the other side keeps the window closed, nothing is outstanding, and a UDF waits.
    #[inline]
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.sender.is_stalled()
    }

    /// Expiries of the retransmission timer since the last acknowledgement of something new. All of
    /// them are counted in [`Counters::timeouts`].
    #[inline]
    #[must_use]
    pub fn timeouts_in_a_row(&self) -> u32 {
        self.sender.loss.timeouts_in_a_row()
    }

    /// How the connection is doing, for people.
    #[must_use]
    pub fn status(&self) -> Status {
        let sender = &self.sender;
        Status {
            is_failed: self.is_failed,
            is_sending: sender.is_running,
            is_receiving: self.receiver.is_running(),
            queued: sender.queued(),
            outstanding: sender.next - sender.left,
            in_flight: sender.loss.in_flight,
            credit: sender.right.saturating_sub(sender.next),
            congestion: sender.congestion.name(),
            congestion_window: sender.congestion.window(),
            rtt: sender.rtt.name(),
            round_trip: sender.rtt.estimate(),
            round_trip_min: sender.rtt.min_rtt(),
            next_seq: sender.next,
            receiver_left: self.receiver.left(),
            receiver_right: self.receiver.right(),
            held: self.receiver.held(),
        }
    }
}

/// How a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// It has failed.
    pub is_failed: bool,
    /// A run is going on as a sender.
    pub is_sending: bool,
    /// A run is going on as a receiver.
    pub is_receiving: bool,
    /// UDFs in the closed-window queue.
    pub queued: usize,
    /// PDUs sent and not acknowledged below the left edge.
    pub outstanding: u64,
    /// Of them, those that are thought to be on their way.
    pub in_flight: u64,
    /// PDUs that the window still allows.
    pub credit: u64,
    /// Name of the congestion control policy.
    pub congestion: &'static str,
    /// Its window in PDUs.
    pub congestion_window: u64,
    /// Name of the round-trip time policy.
    pub rtt: &'static str,
    /// Its estimate; 0 before the first sample.
    pub round_trip: Duration,
    /// The smallest round-trip time; 0 before the first sample.
    pub round_trip_min: Duration,
    /// Number of the next new PDU.
    pub next_seq: u64,
    /// The receiver's left edge: next expected.
    pub receiver_left: u64,
    /// The right edge that was advertised.
    pub receiver_right: u64,
    /// UDFs that wait for the reader or for a missing one.
    pub held: usize,
}
