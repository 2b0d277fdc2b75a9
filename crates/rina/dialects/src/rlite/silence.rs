//! Handles M_CONNECTs without an answer, and N-1 flows that only the other end believes to be
//! connected.
//!
//! rlite discards an M_CONNECT on an N-1 flow that rlite itself requested and believes to be
//! connected. That happens after this side was restarted or lost the N-1 flow without rlite
//! noticing; over Ethernet both ends of the N-1 flow stay the same. M_RELEASE makes rlite forget
//! the neighbour. Its kernel keeps the N-1 flow for another 4 s.
//!
//! ```text
//!   this IPCP                              rlite, which is connected
//!     M_CONNECT                   ------->   discarded
//!     no answer for 2.5 s, or }
//!     a request received      }
//!     M_RELEASE                   ------->   forgets the neighbour
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

/// rlite does not react to PDUs that it cannot decode.
const NO_ANSWER: &str = "no answer to M_CONNECT: the peer does not run, or its PDUs have other \
     field widths (`widths`) or another checksum (policy of `pci-checksum`) than those that this \
     IPCP was given";

/// The other side sends requests of an earlier connection.
const CONNECTED_AT_PEER: &str = "no answer to M_CONNECT: the peer runs, and takes this IPCP for a \
     neighbour that is still connected; it was sent M_RELEASE, or notices by itself within 80 s";

/// How long this IPCP waits for the answer to the first M_CONNECT of an attempt.
pub(super) const CONNECT_WAIT: Duration = Duration::from_millis(2_500);
/// How long this IPCP waits for the answer to the M_CONNECT after M_RELEASE.
const LAST_CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Time from M_RELEASE to the next M_CONNECT.
const RELEASE_WAIT: Duration = Duration::from_millis(4_500);

/// How long after M_CONNECT a received request may have been sent before M_CONNECT arrived.
const REQUEST_WAIT: Duration = Duration::from_secs(1);

/// Number of unanswered attempts after which another N-1 flow is requested.
const UNANSWERED_MAX: u32 = 3;

/// Largest number of contacts whose refusals are remembered.
const REFUSALS_MAX: usize = 64;

impl Rlite {
    /// How long to wait for the answer to the M_CONNECT that is sent now.
    pub(super) fn connect_wait(&self, n1: N1Port) -> Duration {
        if self.n1s.get(&n1).is_some_and(|flow| flow.has_released) {
            LAST_CONNECT_WAIT
        } else {
            CONNECT_WAIT
        }
    }

    /// Handles an M_CONNECT without an answer. After the first one of an attempt, M_RELEASE and
    /// another M_CONNECT follow; after the second one, the attempt ends.
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
            // The other end may have ended without notice.
            self.drop_neighbour(now, n1, "its other end does not answer", dt);
        } else {
            let (reason, is_final) = self.reason_of_silence(n1);
            self.failed(now, n1, &reason, is_final, dt);
        }
    }

    /// Answers a request on an N-1 flow without a connection with M_RELEASE, since the other side
    /// takes this IPCP for a connected neighbour. Returns false when the request is only a protocol
    /// violation. Only the side that requested the N-1 flow does so: rlite does not connect again
    /// to a neighbour that released it.
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
        // One M_RELEASE is enough for several requests that the other side sends at once.
        if !matches!(flow.stage, Stage::Idle) || !flow.has_released {
            self.release_unconnected(now, n1, dt);
        }
        if self.member.is_none() {
            self.note_refusal(contact, CONNECTED_AT_PEER, false);
        }
        true
    }

    /// Sends M_RELEASE outside of any connection. M_CONNECT follows when the other side has had
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
            // A number that no request of the other side's connection uses.
            invoke_id: i32::MAX,
            ..Message::new(Opcode::Release)
        };
        dt.send_management(now, Target::N1(n1), &RULES.encode(&message));
    }

    /// Why M_CONNECT has no answer, and whether the reason is lasting, from an earlier attempt that
    /// was answered. An enroller that was abandoned during an enrollment does not answer for a
    /// while.
    fn reason_of_silence(&self, n1: N1Port) -> (String, bool) {
        let key = self.n1s.get(&n1).map(|flow| contact(&flow.props));
        let told = key.and_then(|key| self.refusals.get(&key));
        match told.filter(|_| self.member.is_none()) {
            Some((reason, is_final)) if reason == CONNECTED_AT_PEER => (reason.clone(), *is_final),
            Some((reason, is_final)) => {
                let reason = format!("{reason} (later M_CONNECTs have had no answer)");
                (reason, *is_final)
            }
            None => (NO_ANSWER.to_string(), false),
        }
    }

    /// Remembers why an attempt of this IPCP that was answered failed.
    pub(super) fn note_refusal(&mut self, contact: (String, String), reason: &str, is_final: bool) {
        let refusal = (reason.to_string(), is_final);
        if self.refusals.contains_key(&contact) || self.refusals.len() < REFUSALS_MAX {
            self.refusals.insert(contact, refusal);
        }
    }
}
