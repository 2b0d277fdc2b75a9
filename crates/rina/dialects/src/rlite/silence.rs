//! M_CONNECT without an answer, and an N-1 flow whose other end is connected while this one is not.
//!
//! rlite discards M_CONNECT on an N-1 flow that it asked for itself and believes connected. That is
//! so after this side was restarted, or lost the N-1 flow, while rlite has noticed nothing; over
//! Ethernet both ends of the N-1 flow stay the same. M_RELEASE makes rlite forget the neighbour.
//! Its kernel keeps the N-1 flow for 4 s after that.
//!
//! ```text
//!   this IPCP                              rlite, which is connected
//!     M_CONNECT                   ------->   discarded
//!     nothing for 2.5 s  }
//!     or any request     }
//!     M_RELEASE           ------->   the neighbour is forgotten
//!     4.5 s later: M_CONNECT      ------->
//!                                 <-------   M_CONNECT_R
//! ```

use alloc::format;
use alloc::string::{String, ToString};

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Target};
use carina_time::{Duration, Instant};

use super::n1::{Stage, connection, contact};
use super::{RULES, Rlite};

/// rlite says nothing to PDUs that it does not understand.
const NO_ANSWER: &str = "no answer to M_CONNECT: the peer does not run, or its PDUs have other \
     field widths (`widths`) or another checksum (policy of `pci-checksum`) than those that this \
     IPCP was given";

/// The other side sends requests of an earlier connection.
const CONNECTED_THERE: &str = "no answer to M_CONNECT: the peer runs, and takes this IPCP for a \
     neighbour that is still connected; it was sent M_RELEASE, or notices by itself within 80 s";

/// How long the first M_CONNECT of an attempt is waited for, and the one after M_RELEASE.
pub(super) const CONNECT_WAIT: Duration = Duration::from_millis(2_500);
const LAST_CONNECT_WAIT: Duration = Duration::from_secs(2);

/// From M_RELEASE to the next M_CONNECT.
const RELEASE_WAIT: Duration = Duration::from_millis(4_500);

/// How long after M_CONNECT a request may still be one that was sent before M_CONNECT arrived.
const REQUEST_WAIT: Duration = Duration::from_secs(1);

/// After so many attempts without an answer another N-1 flow is asked for.
const UNANSWERED_MAX: u32 = 3;

/// Contacts whose refusals are remembered.
const REFUSALS_MAX: usize = 64;

impl Rlite {
    /// How long the M_CONNECT that is sent now is waited for.
    pub(super) fn connect_wait(&self, n1: N1Port) -> Duration {
        if self.n1s.get(&n1).is_some_and(|flow| flow.has_released) {
            LAST_CONNECT_WAIT
        } else {
            CONNECT_WAIT
        }
    }

    /// M_CONNECT has had no answer: the first of an attempt is followed by M_RELEASE and another,
    /// the second ends the attempt.
    pub(super) fn connect_timeout(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        if self.crossing_timeout(now, n1, dt) {
            return;
        }
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if !flow.has_released {
            flow.why = "the peer does not answer M_CONNECT".to_string();
            return self.release_unconnected(now, n1, dt);
        }
        flow.has_released = false;
        flow.unanswered += 1;
        if flow.unanswered >= UNANSWERED_MAX && flow.props.is_initiator {
            // Its other end may be gone without a notice.
            self.drop_neighbour(now, n1, "its other end does not answer", dt);
        } else {
            let (reason, is_final) = self.reason_of_silence(n1);
            self.failed(now, n1, &reason, is_final, dt);
        }
    }

    /// Answers a request that came over an N-1 flow without a connection with M_RELEASE, since the
    /// other side takes this IPCP for a neighbour. False when the request is an ordinary violation.
    /// Only the initiator of the N-1 flow answers: rlite does not come back to a neighbour that has
    /// released it.
    pub(super) fn release_mistaken(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return false;
        };
        let is_unconnected = match flow.stage {
            Stage::Idle => true,
            Stage::Connecting => flow.crossed.is_none() && now >= flow.asked_at + REQUEST_WAIT,
            _ => false,
        };
        let is_request = !message.opcode.is_response() && message.opcode != Opcode::Release;
        if !is_request || !is_unconnected || !flow.props.is_initiator || self.has_left {
            return false;
        }
        self.log.count("requests-unconnected");
        flow.why = "the peer takes this IPCP for a neighbour that is still connected".to_string();
        let contact = contact(&flow.props);
        // One M_RELEASE is enough for what the other side sends at a time.
        if !matches!(flow.stage, Stage::Idle) || !flow.has_released {
            self.release_unconnected(now, n1, dt);
        }
        if self.member.is_none() {
            self.note_refusal(contact, CONNECTED_THERE, false);
        }
        true
    }

    /// Sends M_RELEASE outside of any connection, and M_CONNECT when the other side has had the
    /// time to forget the N-1 flow.
    fn release_unconnected(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.stage = Stage::Idle;
        flow.cdap = connection();
        flow.has_released = true;
        flow.at = Some(now + RELEASE_WAIT);
        let message = Message {
            version: RULES.version,
            // No request of the connection that the other side has uses this number.
            invoke_id: i32::MAX,
            ..Message::new(Opcode::Release)
        };
        dt.send_management(now, Target::N1(n1), &RULES.encode(&message));
    }

    /// Why M_CONNECT has no answer, and whether time changes that: an earlier attempt that had one
    /// may have said. An enroller that was left in the middle of an enrollment is silent for a
    /// while.
    fn reason_of_silence(&self, n1: N1Port) -> (String, bool) {
        let key = self.n1s.get(&n1).map(|flow| contact(&flow.props));
        let told = key.and_then(|key| self.refusals.get(&key));
        match told.filter(|_| self.member.is_none()) {
            Some((reason, is_final)) if reason == CONNECTED_THERE => (reason.clone(), *is_final),
            Some((reason, is_final)) => {
                let reason = format!("{reason} (later M_CONNECTs have had no answer)");
                (reason, *is_final)
            }
            None => (NO_ANSWER.to_string(), false),
        }
    }

    /// Remembers why an attempt of this IPCP failed that had an answer.
    pub(super) fn note_refusal(&mut self, contact: (String, String), reason: &str, is_final: bool) {
        let refusal = (reason.to_string(), is_final);
        if self.refusals.contains_key(&contact) || self.refusals.len() < REFUSALS_MAX {
            self.refusals.insert(contact, refusal);
        }
    }
}
