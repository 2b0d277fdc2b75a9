//! Numbers of control PDUs.

use crate::profile::EfcpProfile;
use crate::seq;

/// What is known of the numbers of the other side's control PDUs.
#[derive(Debug)]
pub(crate) struct ControlNumbers {
    pub(crate) bits: u8,
    /// What numbers are less by on the wire: here they begin with 1, there perhaps with 0.
    pub(crate) less: u64,
    /// Both sides begin anew with each run of data.
    pub(crate) restarts: bool,
    /// Number of the next control PDU of this side.
    pub(crate) next: u64,
    /// Highest number received; 0 for none.
    pub(crate) last: u64,
    /// A number far ahead that is believed when one close above it comes.
    pub(crate) candidate: Option<u64>,
}

/// How far numbers may jump without doubt.
pub(crate) const JUMP: u64 = 4096;

/// How far back a number may be and still be late; further back, the other side begins anew.
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

    /// A run of this side begins: the other side's control PDUs may begin anew.
    pub(crate) fn on_own_run(&mut self) {
        if self.restarts {
            (self.last, self.candidate) = (0, None);
        }
    }

    /// A run of the other side has begun.
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
