//! One end of a connection, which combines a sender and a receiver.

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

/// A PDU to send: the values for its PCI, and its user-data field.
#[derive(Debug)]
pub struct Transmit<P> {
    /// Type of the PDU, such as data, control or rendezvous.
    pub kind: PduType,
    /// Whether the PDU has the data run flag: it is the first of a run.
    pub drf: bool,
    /// Sequence number of a data PDU, as on the wire; 0 for other types.
    pub seq: u64,
    /// Contents of a control or rendezvous PDU; `None` for a data PDU.
    pub control: Option<Control>,
    /// The user-data field of a data PDU; `None` for other types.
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

/// What the caller should do after [`Connection::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// [`Connection::poll_deliver`] will return a UDF.
    pub is_deliverable: bool,
    /// [`Connection::poll_transmit`] may return a PDU before the end of the burst.
    pub is_sendable: bool,
}

/// One end of an EFCP connection. The crate's documentation gives the order of calls.
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
    /// Makes one end of a connection, which has sent and received nothing. `seed` only affects the
    /// choice of initial sequence numbers.
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

    /// Starts the first run with sequence number `number`.
    #[cfg(test)]
    pub(crate) fn begin_with(&mut self, number: u64) {
        self.sender.prepared = Some(number);
    }

    /// Returns this end's counters since the connection was created.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of UDFs that [`Connection::write`] accepts now. It grows after `receive` and
    /// `handle_timeout`.
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
    /// Returns the UDF if the queue is full, if no buffer is free, after `finish`, or after a
    /// failure.
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

    /// Like [`Connection::write`], but returns the PDU of the UDF if no other PDU is waiting and
    /// the window is open. The caller sends this PDU now. It fetches all other PDUs (queued data,
    /// control PDUs) by [`Connection::poll_transmit`], at the latest after its last write of a
    /// burst.
    ///
    /// # Errors
    /// As for `write`.
    #[inline]
    pub fn write_through(&mut self, now: Instant, udf: P) -> Result<Option<Transmit<P>>, P> {
        let is_first = !self.sender.has_work() && !self.receiver.is_control_due();
        self.write(now, udf)?;
        Ok(if is_first { self.next_data(now) } else { None })
    }

    /// Processes a received PDU of this connection.
    ///
    /// # Errors
    /// The reason why the PDU was discarded. The connection has counted it already.
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
                // The sender's window is closed, so it has sent everything below the right edge.
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

    /// Returns the next PDU to send, if any. Call it again after any call other than
    /// `poll_deliver`, `poll_event` and `poll_timeout`.
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

    /// The next data PDU: a retransmission first, otherwise a new one.
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

    /// Whether [`Connection::poll_deliver`] would return a UDF now.
    #[inline]
    #[must_use]
    pub fn is_deliverable(&self) -> bool {
        self.receiver.has_ready()
    }

    /// Takes the next UDF for the reader; `None` if none is ready.
    #[must_use]
    pub fn poll_deliver(&mut self) -> Option<Delivered<P>> {
        let delivered = self.receiver.poll_deliver()?;
        self.counters.delivered += 1;
        Some(delivered)
    }

    /// Takes the oldest event of the connection; `None` if none waits.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<ConnEvent> {
        self.events.pop_front()
    }

    /// The time at which [`Connection::handle_timeout`] must be called; `None` if no timer runs.
    /// After that call no timer up to `now` is due any more, even if the caller has not fetched the
    /// resulting PDUs with [`Connection::poll_transmit`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let at = self.receiver.next_timeout().min(self.sender.next_timeout());
        (at != Instant::MAX && !self.is_failed).then_some(at)
    }

    /// Processes all timers that are due at `now`. Then fetch PDUs and events.
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

    /// Sets how many UDFs the reader has room for, including those that
    /// [`Connection::poll_deliver`] has not returned yet.
    pub fn set_credit(&mut self, _now: Instant, pdus: u32) {
        self.receiver.set_credit(pdus);
    }

    /// Ends a burst. Acknowledgements that wait for the end of a burst become due, and queued
    /// payloads are copied to memory that outlives the burst.
    pub fn end_of_burst(&mut self, _now: Instant) {
        self.sender.end_of_burst(&mut self.counters);
        self.receiver.end_of_burst(&mut self.counters);
        if let Some(reason) = self.receiver.broken {
            self.fail(reason);
        }
    }

    /// Declares that no more UDFs will be written. [`ConnEvent::Drained`] follows when the
    /// connection has drained; see [`Connection::is_drained`].
    pub fn finish(&mut self, _now: Instant) {
        self.is_finished = true;
        self.check_drained();
    }

    /// Whether everything that was written has been sent and, with retransmission control,
    /// acknowledged.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.sender.is_drained()
    }

    /// Sets the rate that this end's receiver grants. No effect on a connection without flow
    /// control by rate.
    pub fn set_rate(&mut self, now: Instant, rate: RateControl) {
        self.receiver.set_rate(now, rate);
    }

    /// Replaces the policy of congestion control. The new policy starts with its initial window.
    pub fn set_congestion(&mut self, policy: Box<dyn CongestionControl>) {
        self.sender.congestion = policy;
    }

    /// Replaces the policy of round-trip time estimation. The new policy starts without samples.
    pub fn set_rtt(&mut self, policy: Box<dyn RttEstimator>) {
        self.sender.rtt = policy;
    }

    /// Whether the peer keeps the window closed while no PDU is outstanding and a UDF is queued.
    #[inline]
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.sender.is_stalled()
    }

    /// Number of expiries of the retransmission timer since the last acknowledgement of new data.
    /// [`Counters::timeouts`] counts all expiries.
    #[inline]
    #[must_use]
    pub fn timeouts_in_a_row(&self) -> u32 {
        self.sender.loss.timeouts_in_a_row()
    }

    /// Returns the state of the connection for people to read: windows, queues and round-trip time.
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

/// State of one end of a connection at one moment: windows, queues and round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether the connection has failed; it then carries no more data.
    pub is_failed: bool,
    /// Whether this end is within a run of data PDUs that it sends.
    pub is_sending: bool,
    /// Whether this end is within a run of data PDUs that it receives.
    pub is_receiving: bool,
    /// Number of UDFs that are written but not sent (the closed-window queue).
    pub queued: usize,
    /// PDUs that were sent and are not acknowledged, counted from the left edge.
    pub outstanding: u64,
    /// PDUs that are believed to be in flight: outstanding, and neither acknowledged nor considered
    /// lost.
    pub in_flight: u64,
    /// Number of further PDUs that the window allows to be sent.
    pub credit: u64,
    /// Name of the congestion control policy in use.
    pub congestion: &'static str,
    /// Window of congestion control, in PDUs.
    pub congestion_window: u64,
    /// Name of the policy of round-trip time estimation in use.
    pub rtt: &'static str,
    /// Estimated round-trip time; 0 before the first sample.
    pub round_trip: Duration,
    /// Smallest round-trip time measured; 0 before the first sample.
    pub round_trip_min: Duration,
    /// Sequence number of the next PDU to be sent for the first time.
    pub next_seq: u64,
    /// Left edge of the receiver: the next sequence number that it expects.
    pub receiver_left: u64,
    /// Right edge that the receiver has advertised to the peer.
    pub receiver_right: u64,
    /// UDFs that the receiver holds, for the reader or because an earlier one is missing.
    pub held: usize,
}
