//! Sequence numbers of control PDUs.

use crate::profile::EfcpProfile;
use crate::seq;

/// The numbers of both sides' control PDUs.
#[derive(Debug)]
pub(crate) struct ControlNumbers {
    pub(crate) bits: u8,
    /// What to subtract from a number of this table, which starts with 1, to get the number on the
    /// wire, which starts with 0 in some profiles: 0 or 1.
    pub(crate) less: u64,
    /// Whether both sides restart the numbers of control PDUs with each run of data.
    pub(crate) restarts: bool,
    /// Number of the next control PDU of this side.
    pub(crate) next: u64,
    /// Highest number of a control PDU received from the peer; 0 for none.
    pub(crate) last: u64,
    /// A number far above `last`. The next control PDU with a number slightly above it confirms the
    /// jump.
    pub(crate) candidate: Option<u64>,
}

/// Largest step in numbers that is accepted without confirmation.
pub(crate) const JUMP: u64 = 4096;

/// A control PDU with a number at most this far below `last` is late. One further below means that
/// the peer has restarted its numbering.
const LATE: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Newest { missing: u64 },
    Old { is_far: bool },
    Jump,
}

impl ControlNumbers {
    pub(crate) fn new(bits: u8, profile: &EfcpProfile) -> ControlNumbers {
        ControlNumbers {
            bits,
            less: u64::from(profile.control_first == 0),
            restarts: profile.control_restarts,
            next: 1,
            last: 0,
            candidate: None,
        }
    }

    /// This side starts a run. The peer may restart the numbers of its control PDUs.
    pub(crate) fn on_own_run(&mut self) {
        if self.restarts {
            (self.last, self.candidate) = (0, None);
        }
    }

    /// The peer has started a run. This side restarts its numbers if the profile says so.
    pub(crate) fn on_other_run(&mut self) {
        if self.restarts {
            self.next = 1;
        }
    }

    pub(crate) fn to_wire(&self, number: u64) -> u64 {
        seq::truncate(number.saturating_sub(self.less), self.bits)
    }

    pub(crate) fn place(&mut self, wire: u64) -> Place {
        let wire = wire.wrapping_add(self.less);
        let Some(number) = seq::extend(wire, self.last, self.bits) else {
            return Place::Old { is_far: true };
        };
        if number <= self.last {
            let is_far = self.last - number > LATE;
            return Place::Old { is_far };
        }
        let ahead = number - self.last;
        if ahead > JUMP {
            let is_confirmed = self
                .candidate
                .is_some_and(|candidate| number > candidate && number - candidate <= JUMP);
            self.candidate = Some(number);
            if !is_confirmed {
                return Place::Jump;
            }
        }
        self.candidate = None;
        self.last = number;
        Place::Newest { missing: ahead - 1 }
    }
}
