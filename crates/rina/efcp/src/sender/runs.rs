//! How the sender starts runs.
//!
//! The data run flag (DRF) and the silence of 3Δt are defined in R. Watson, *The Delta-t Transport
//! Protocol: Features and Experience* (1989).

use carina_time::Instant;
use carina_wire::Payload;

use super::Sender;
use crate::control_numbers::ControlNumbers;
use crate::counters::Counters;
use crate::profile::{FirstNumber, Wrap};
use crate::seq::Random;

impl<P: Payload> Sender<P> {
    /// Starts a run if no run is open, if nothing was sent for 3Δt, or if all numbers of the run
    /// are used and acknowledged.
    pub(crate) fn begin_when_silent(
        &mut self,
        now: Instant,
        random: &mut Random,
        numbers: &mut ControlNumbers,
        counters: &mut Counters,
    ) {
        let is_silent = now >= self.active_at + self.silence;
        let is_used_up = self.profile.wrap == Wrap::NewRun && self.next >= self.end;
        if self.is_running && !((is_silent || is_used_up) && self.sent.is_empty()) {
            return;
        }
        self.be_careful();
        if self.is_running && !is_used_up && now < self.active_at + self.delta_t * 3 {
            // The run continues, although the peer may have forgotten it.
            return;
        }
        self.is_running = true;
        let start = self.prepared.take();
        let start = start.unwrap_or_else(|| self.first_number(random));
        self.place(start);
        numbers.on_own_run();
        self.is_rolled_over = false;
        self.rendezvous_at = Instant::MAX;
        self.loss.restart();
        counters.runs += 1;
    }

    /// Chooses the first number of the first run when the connection is created, in profiles whose
    /// control PDUs announce it before the run starts.
    pub(crate) fn prepare(&mut self, random: &mut Random) {
        if self.profile.first != FirstNumber::Random {
            let start = self.first_number(random);
            self.place(start);
            self.prepared = Some(start);
        }
    }

    fn first_number(&self, random: &mut Random) -> u64 {
        match self.profile.first {
            FirstNumber::Random => random.initial(self.bits),
            FirstNumber::Zero => 0,
            FirstNumber::AfterRandom => random.after(self.bits),
        }
    }

    fn place(&mut self, start: u64) {
        (self.start, self.left, self.next) = (start, start, start);
        let initial = self.window.map_or(0, |window| window.initial_credit);
        self.right = start.saturating_add(u64::from(initial));
    }

    fn be_careful(&mut self) {
        if self.profile.takes_any_first && self.is_reliable {
            self.flight_max = 1;
        }
    }

    /// Called at an acknowledgement: the peer knows the run now, so the limit of one PDU in flight
    /// ends.
    pub(super) fn be_quick(&mut self) {
        self.flight_max = u64::MAX;
    }
}
