//! The app for a flow's end whose other side is a channel in shared memory, with an application or
//! another worker ([`crate::crossing`]).

use std::os::fd::{AsFd, BorrowedFd};

use carina_engine::counters::Value;
use carina_engine::{App, BURST, BURST_BYTES, Close, Links, Packet, record_cost};
use carina_ring::channel::Endpoint;
use carina_ring::{Corrupt, Lease, Refused, State};
use carina_sys::Interest;
use carina_time::{Duration, Instant};

use crate::crossing::{CROSSING_WINDOW, Crossing};
use crate::flow::{Flow, requested_close};

/// The app of a flow's end over a ring.
pub(crate) struct RingFlow {
    flow: Flow,
    end: Endpoint,
    /// The crossing to another worker, if that worker has the other side of the channel.
    crossing: Option<Crossing>,
    /// A record of the application that is only partly on the link.
    partial: Option<Lease>,
    /// Whether the application's last record was a piece of an SDU that continues.
    is_within_sdu: bool,
    /// Whether records were read in this breath and must be released.
    has_read: bool,
    has_written: bool,
    /// Where the application's stream ends after a request to close, as an index of its ring.
    cut: Option<u64>,
    /// When a flow that is about to end gives up delivery. Each delivered record extends it.
    give_up_at: Option<Instant>,
    /// Ring bytes that were reported as consumed by the application.
    reported: u64,
    is_armed: bool,
}

impl RingFlow {
    pub(crate) fn new(flow: Flow, end: Endpoint) -> RingFlow {
        RingFlow {
            flow,
            end,
            crossing: None,
            partial: None,
            is_within_sdu: false,
            has_read: false,
            has_written: false,
            cut: None,
            give_up_at: None,
            reported: 0,
            is_armed: false,
        }
    }

    /// The app for one end of a crossing.
    pub(crate) fn crossing(flow: Flow, end: Endpoint, crossing: Crossing) -> RingFlow {
        RingFlow {
            crossing: Some(crossing),
            ..RingFlow::new(flow, end)
        }
    }

    /// Ring bytes that the application has consumed. The ring checks the application's index.
    fn consumed(&mut self) -> Result<u64, Corrupt> {
        let filled = self.end.tx.capacity() - self.end.tx.free_bytes()?;
        Ok(self.end.tx.committed().saturating_sub(filled as u64))
    }

    /// Consumed bytes are reported in steps of an eighth of the ring, half of what a waiting link
    /// needs.
    fn report_step(&self) -> u64 {
        match self.crossing {
            Some(_) => CROSSING_WINDOW / 8,
            None => (self.end.tx.capacity() / 8) as u64,
        }
    }

    /// The application's next record; `None` if the ring is empty.
    fn next_record(&mut self) -> Result<Option<Lease>, Corrupt> {
        match self.partial.take() {
            Some(lease) => Ok(Some(lease)),
            None => self.end.rx.next(),
        }
    }

    /// Moves the next record or bundle to the link. `None` if the ring is empty; false if the link
    /// accepts no more.
    fn forward_next(&mut self, links: &mut Links) -> Result<Option<bool>, Corrupt> {
        if self.forward_bundle(links)? {
            return Ok(Some(true));
        }
        let record = self.next_record()?;
        Ok(record.map(|lease| self.forward(lease, links)))
    }

    /// Moves several SDUs at once, in the format of the ring, if the link accepts bundles. Returns
    /// false if nothing was moved and the SDUs must be moved one by one.
    fn forward_bundle(&mut self, links: &mut Links) -> Result<bool, Corrupt> {
        // After a request to close, the stream may end within a bundle.
        if self.partial.is_some() || self.is_within_sdu || self.cut.is_some() {
            return Ok(false);
        }
        let Some(room) = links.bundle_room(self.flow.output) else {
            return Ok(false);
        };
        let bundle = self.end.rx.next_sdus(room.bytes_max, room.sdu_bytes_max)?;
        let Some((lease, sdus)) = bundle else {
            return Ok(false);
        };
        self.has_read = true;
        self.flow.count_sdus_in(sdus);
        let bundle = Packet::from_bundle(lease, sdus);
        if links.push(self.flow.output, bundle).is_err() {
            self.flow
                .row
                .add(Value::DropFlowEnded, u64::from(sdus.count));
        }
        Ok(true)
    }

    /// Moves one record, or the part of the record for which the link has room. Returns false if
    /// the link has no more room.
    fn forward(&mut self, mut lease: Lease, links: &mut Links) -> bool {
        self.is_within_sdu = lease.more();
        loop {
            let piece = lease.len().min(links.piece_max(self.flow.output));
            let is_stuck = piece == 0 && !lease.is_empty();
            if is_stuck || !links.may_push(self.flow.output, piece) {
                self.partial = Some(lease);
                return false;
            }
            let is_last = piece == lease.len();
            let more = !is_last || lease.more();
            self.has_read = true;
            self.flow.count_in(piece, more);
            // A record that is moved completely is not cloned, because a clone changes the
            // reference count twice.
            let (view, rest) = if is_last {
                (lease, None)
            } else {
                let mut view = lease.clone();
                view.truncate(piece);
                (view, Some(lease))
            };
            if links
                .push(self.flow.output, Packet::from_lease(view, more))
                .is_err()
            {
                self.flow.row.add(Value::DropFlowEnded, 1);
            }
            let Some(rest) = rest else {
                return true;
            };
            lease = rest;
            lease.advance(piece);
        }
    }

    fn fail(&mut self, links: &mut Links, what: &str) {
        self.flow.row.add(Value::DropMalformed, 1);
        let close = Close::Failed(format!("the application broke its flow: {what}"));
        self.finish(links, State::Failed, close);
    }

    /// Closes the ring and the links, and removes the app from the engine.
    fn finish(&mut self, links: &mut Links, state: State, close: Close) {
        if let Some(crossing) = &self.crossing {
            crossing.close(&close);
        }
        self.end.close(state);
        self.flow.end(links, close);
    }

    /// Publishes the longest SDU that this side accepts, and limits SDUs from this side to what the
    /// other side accepts.
    fn exchange_piece_max(&self, links: &mut Links) {
        let Some(crossing) = &self.crossing else {
            return;
        };
        if crossing.state_piece_max(links.piece_max(self.flow.output)) {
            self.end.peer_rx_doorbell.signal();
        }
        match crossing.piece_max() {
            0 => {}
            taken => {
                let taken = taken.min(piece_max(CROSSING_WINDOW));
                links.set_piece_max(self.flow.input, taken);
            }
        }
    }

    /// Handles the end of the application's stream, after all records were read.
    fn end_of_stream(&mut self, links: &mut Links, state: State) {
        let close = match (&self.crossing, state, self.flow.close_request.take()) {
            (Some(crossing), ..) => crossing.closed(),
            (None, State::Closed, _) => Close::Graceful(String::new()),
            (None, _, request) => requested_close(request),
        };
        let state = match state {
            State::Closed => State::Closed,
            _ => State::Failed,
        };
        self.finish(links, state, close);
    }

    fn write(&mut self, packet: &Packet) -> Result<(), Refused> {
        if let Some(sdus) = packet.bundle() {
            let mut stretch = self.end.tx.stretch(packet.len())?;
            packet.copy_bundle_into(&mut stretch);
            stretch.commit(packet.len());
            self.has_written = true;
            self.flow.count_sdus_out(sdus);
            return Ok(());
        }
        let mut slot = self.end.tx.reserve(packet.len())?;
        packet.copy_into(&mut slot, 0);
        slot.commit(packet.more());
        self.has_written = true;
        self.flow.count_out(packet.len(), packet.more());
        Ok(())
    }

    /// Handles the end of the flow by the peer, after everything it sent was written to the
    /// application's ring.
    fn input_ended(&mut self, links: &mut Links, close: Close) {
        let state = match close {
            Close::Graceful(_) => State::Closed,
            Close::Failed(_) | Close::Refused(_) => State::Failed,
        };
        self.has_written = false;
        self.finish(links, state, close);
    }
}

impl App for RingFlow {
    fn name(&self) -> &str {
        &self.flow.name
    }

    fn prepare(&mut self, now: Instant, links: &mut Links) {
        if self.flow.is_done {
            return;
        }
        self.flow.note_channel(links);
        if self.give_up_at.is_some_and(|deadline| now >= deadline) {
            let text = "the peer's application did not read the remaining SDUs".to_owned();
            return self.finish(links, State::Failed, Close::Failed(text));
        }
        self.exchange_piece_max(links);
        if self.end.tx.committed() == self.reported {
            return;
        }
        let consumed = match self.consumed() {
            Ok(consumed) => consumed,
            Err(corrupt) => return self.fail(links, &corrupt.to_string()),
        };
        if consumed >= self.reported + self.report_step() {
            self.reported = consumed;
            links.report(self.flow.input, consumed);
        }
    }

    fn pull(&mut self, now: Instant, links: &mut Links) -> bool {
        if self.flow.is_done {
            return false;
        }
        // The state is read before the ring, so that nothing written before the end is missed.
        let state = self.end.rx.state();
        if self.cut.is_none() && self.flow.close_request.borrow().is_some() {
            // A corrupt ring counts as empty, because nothing more can be read from it.
            let pending = self.end.rx.pending_bytes().unwrap_or(0);
            self.cut = Some(self.end.rx.consumed() + pending);
            self.give_up_at = Some(now + UNDELIVERED_MAX);
        }
        // A flow between two workers has no request to close here; the other worker has ended it.
        if state != State::Open && self.crossing.is_some() && self.give_up_at.is_none() {
            self.give_up_at = Some(now + UNDELIVERED_MAX);
        }
        let enough = self.end.rx.consumed() + BURST_BYTES as u64;
        for moved in 0..BURST {
            if moved > 0 && self.end.rx.consumed() >= enough {
                break;
            }
            if self.partial.is_none() && self.cut.is_some_and(|cut| self.end.rx.consumed() >= cut) {
                self.end_of_stream(links, state);
                return true;
            }
            let is_forwarded = match self.forward_next(links) {
                Ok(Some(is_forwarded)) => is_forwarded,
                Ok(None) => {
                    if state != State::Open {
                        self.end_of_stream(links, state);
                    }
                    return moved > 0;
                }
                Err(corrupt) => {
                    self.fail(links, &corrupt.to_string());
                    return true;
                }
            };
            if self.has_read && self.give_up_at.is_some() {
                self.give_up_at = Some(now + UNDELIVERED_MAX);
            }
            if !is_forwarded {
                return self.has_read;
            }
        }
        true
    }

    fn push(&mut self, _now: Instant, links: &mut Links) -> bool {
        let mut moved = false;
        while let Some(link) = links.next_ready(self.flow.id) {
            while let Some(packet) = links.pop(link) {
                moved = true;
                match self.write(&packet) {
                    Ok(()) => {}
                    Err(_) if self.flow.is_done => self.flow.row.add(Value::DropFlowEnded, 1),
                    // The credit covers the whole ring, so a full ring means that the application
                    // has corrupted it.
                    Err(refused) => {
                        self.flow.row.add(Value::DropRingFull, 1);
                        self.fail(links, &refused.to_string());
                    }
                }
            }
            if let Some(close) = links.closed(link).cloned()
                && !self.flow.is_done
            {
                self.input_ended(links, close);
            }
        }
        moved
    }

    fn release_burst(&mut self, _now: Instant, links: &mut Links) {
        if links.defers_doorbells() {
            return;
        }
        if self.has_written {
            self.has_written = false;
            self.end.publish();
        }
        if self.has_read {
            self.has_read = false;
            let is_waiting = match &self.partial {
                Some(lease) => self.end.rx.release_to(lease.start()),
                None => self.end.rx.release(),
            };
            if is_waiting {
                self.end.peer_tx_doorbell.signal();
            }
        }
    }

    fn arm(&mut self, _now: Instant, _links: &mut Links) -> bool {
        if self.flow.is_done {
            return true;
        }
        // Doorbells were deferred in this breath.
        if self.has_written || self.has_read {
            return false;
        }
        self.is_armed = true;
        // A record that waits for the link needs no doorbell, because the link wakes this app.
        let is_close_requested = self.cut.is_none() && self.flow.close_request.borrow().is_some();
        if is_close_requested || (self.partial.is_none() && !self.end.rx.arm()) {
            return false;
        }
        let outstanding = self.end.tx.committed() - self.reported;
        if outstanding < self.report_step() {
            return true;
        }
        let filled_max = outstanding - self.report_step();
        let room = self.end.tx.capacity().saturating_sub(filled_max as usize);
        // If the ring is corrupt, the app must not sleep either; the next breath detects it.
        if self.end.tx.arm_space(room) == Ok(true) {
            return true;
        }
        self.end.rx.disarm();
        false
    }

    fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        self.end.rx.disarm();
        self.end.tx.disarm();
        // A doorbell that is never drained becomes full, and a full doorbell wakes no waiter.
        self.end.my_rx_doorbell.drain();
        self.end.my_tx_doorbell.drain();
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.give_up_at
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![
            (self.end.my_rx_doorbell.as_fd(), Interest::ReadEdge),
            (self.end.my_tx_doorbell.as_fd(), Interest::ReadEdge),
        ]
    }
}

/// How long an ended flow waits for a reader that reads nothing.
const UNDELIVERED_MAX: Duration = Duration::from_secs(10);

/// The credit of a peer that sends to this ring: the whole ring, counted in ring bytes, so that
/// delivery never finds the ring full.
pub(crate) fn window_of(end: &Endpoint) -> u64 {
    end.tx.capacity() as u64
}

/// The longest piece for a window of `window` ring bytes: a quarter, so that pieces keep moving
/// while credit is in transit.
pub(crate) fn piece_max(window: u64) -> usize {
    let piece = (window / 4) as usize;
    debug_assert!(record_cost(piece - 8) <= window / 4);
    piece.saturating_sub(8)
}
