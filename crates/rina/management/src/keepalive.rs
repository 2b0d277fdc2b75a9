//! Keep-alive between neighbours.

use alloc::vec::Vec;

use carina_cdap::Opcode;
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};

use super::Management;
use super::neighbours::Stage;
use super::schema::{self, Object};

/// Number of keep-alive requests that may stay unanswered.
const MISSED_MAX: u32 = 3;

impl Management {
    /// Interval of keep-alives in this DIF.
    pub(super) fn keepalive_interval(&self) -> Duration {
        let config = self.member.as_ref().map(|member| &member.config);
        Duration::from_millis(config.map_or(5_000, |config| config.keepalive_ms.max(1).into()))
    }

    pub(super) fn keepalive_due(&self) -> Option<Instant> {
        let ups = self.n1s.values().filter_map(|flow| flow.up.as_ref());
        ups.filter(|up| matches!(up.stage, Stage::Neighbours))
            .map(|up| up.ask_at)
            .min()
    }

    pub(super) fn keepalive_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let interval = self.keepalive_interval();
        let due: Vec<N1Port> = self
            .n1s
            .iter()
            .filter(|(n1, _)| self.neighbour(**n1).is_some_and(|up| up.ask_at <= now))
            .map(|(n1, _)| *n1)
            .collect();
        for n1 in due {
            let Some(up) = self.n1s.get_mut(&n1).and_then(|flow| flow.up.as_mut()) else {
                continue;
            };
            let is_silent = now.since(up.heard) >= interval;
            up.missed = if is_silent { up.missed + 1 } else { 0 };
            up.ask_at = now + interval;
            // `missed` counts intervals without a message. A request was sent after each of the
            // first three, and none was answered.
            if up.missed > MISSED_MAX {
                self.log.count("keepalive-lost");
                self.neighbour_lost(now, n1, "no sign of life", dt);
            } else if is_silent {
                let message = schema::request(Opcode::Read, &Object::KeepAlive, None);
                self.tell(now, n1, message, true, dt);
            }
        }
    }
}
