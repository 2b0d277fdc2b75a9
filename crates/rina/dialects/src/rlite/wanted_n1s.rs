//! N-1 flows that were lost and are wanted again: requested from the owner with growing pauses.

use carina_ipcp::api::{Event, N1Properties};
use carina_time::{Duration, Instant};

use super::Rlite;
use super::n1::{RETRY_FIRST, RETRY_MAX, contact};

/// Largest number of N-1 flows that are requested again.
const WANTED_N1S_MAX: usize = 256;

/// An N-1 flow that is requested again.
pub(super) struct WantedN1 {
    at: Instant,
    pause: Duration,
}

impl Rlite {
    /// Schedules a request for an N-1 flow that this side had requested and that has ended.
    pub(super) fn want_n1(&mut self, now: Instant, props: &N1Properties) {
        let is_wanted = props.is_initiator && !self.has_left && !props.remote.is_empty();
        if is_wanted && self.wanted_n1s.len() < WANTED_N1S_MAX {
            self.wanted_n1s.entry(contact(props)).or_insert(WantedN1 {
                at: now + RETRY_FIRST,
                pause: RETRY_FIRST,
            });
        }
    }

    pub(super) fn wanted_n1s_due(&self) -> Option<Instant> {
        self.wanted_n1s.values().map(|seek| seek.at).min()
    }

    pub(super) fn wanted_n1s_timeout(&mut self, now: Instant) {
        for ((dif, remote), seek) in &mut self.wanted_n1s {
            if seek.at <= now {
                seek.pause = (seek.pause * 2).min(RETRY_MAX);
                seek.at = now + self.random.about(seek.pause);
                self.log.push(Event::NeedN1 {
                    dif: dif.clone(),
                    remote: remote.clone(),
                });
            }
        }
    }
}
