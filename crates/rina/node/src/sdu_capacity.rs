//! How long SDUs of N-1 DIFs may be, and the longest PDU that all N-1 DIFs of a DIF carry.

use carina_api::DifName;
use carina_api::control::DifRole;
use carina_ipcp::DifConfig;
use carina_ipcp::policy::component::SDU_PROTECTION;
use carina_wire::dif::Dialect;
use thiserror::Error;

use crate::member_spec::MemberSpec;

/// How long the SDUs on an N-1 flow of a DIF may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SduCapacity {
    /// Longest SDU that the DIF carries, in bytes.
    pub whole: usize,
    /// Longest SDU in bytes that the DIF does not fragment into several of its PDUs.
    pub uncut: usize,
    /// Whether others can listen to the medium, so that SDU protection is used if the DIF has any.
    pub is_exposed: bool,
}

/// Why the longest PDU of a DIF cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum MaxPduError {
    /// The capacity of this N-1 DIF is not known yet.
    #[error("the longest SDU of {0} is not known yet")]
    Unknown(DifName),
    #[error("{dif} carries SDUs of at most {bytes} bytes; a DIF over it needs {needed}")]
    TooSmall {
        dif: DifName,
        bytes: usize,
        needed: usize,
    },
    /// An N-1 DIF does not carry the configured longest PDU.
    #[error("{0}")]
    Conflict(String),
}

/// Looks up the capacity of an N-1 DIF by its name; `None` while it is unknown.
pub(crate) type CapacityIn<'a> = &'a dyn Fn(&DifName) -> Option<SduCapacity>;

impl SduCapacity {
    /// No limits, as with shared memory, whose medium has no limit that is known before it is open.
    pub(crate) const ANY: SduCapacity = SduCapacity {
        whole: usize::MAX,
        uncut: usize::MAX,
        is_exposed: false,
    };

    /// The capacity of flows of a normal DIF whose longest PDU is known.
    pub(crate) fn of_member(
        config: &DifConfig,
        dialect: Dialect,
        max_pdu: u32,
        is_exposed: bool,
    ) -> SduCapacity {
        let uncut = config.sdu_in_one_pdu(dialect, max_pdu as usize);
        let whole = if config.fragments() {
            usize::MAX
        } else {
            uncut
        };
        SduCapacity {
            whole,
            uncut,
            is_exposed,
        }
    }

    /// The smaller limits of both; exposed if either is exposed.
    pub(crate) fn least(self, other: SduCapacity) -> SduCapacity {
        SduCapacity {
            whole: self.whole.min(other.whole),
            uncut: self.uncut.min(other.uncut),
            is_exposed: self.is_exposed || other.is_exposed,
        }
    }

    /// Why an N-1 DIF `below` with this capacity cannot carry PDUs of `max_pdu` bytes; `None` if it
    /// can.
    pub(crate) fn conflict(self, name: &DifName, max_pdu: u32, below: &DifName) -> Option<String> {
        let whole = self.whole;
        (whole < max_pdu as usize).then(|| {
            format!(
                "{below} carries {whole} bytes and the longest PDU of DIF {name} has {max_pdu}; \
                 use another N-1 DIF, or make the DIF with a max_pdu that fits"
            )
        })
    }
}

/// The longest PDU that all of these DIFs carry without fragmenting it.
///
/// # Errors
/// The capacity of one of them is unknown or too small.
pub(crate) fn longest_pdu(
    over: &[DifName],
    config: &DifConfig,
    capacity_in: CapacityIn<'_>,
) -> Result<u32, MaxPduError> {
    let protection = config.policies.get(SDU_PROTECTION);
    let is_protected = protection.is_some_and(|spec| !matches!(&*spec.name, "" | "none"));
    let mut least = PDU_BYTES_MAX;
    for dif in over {
        let Some(capacity) = capacity_in(dif) else {
            return Err(MaxPduError::Unknown(dif.clone()));
        };
        let reserve = if is_protected && capacity.is_exposed {
            PROTECTION_RESERVE
        } else {
            0
        };
        let bytes = capacity.uncut.saturating_sub(reserve);
        if bytes < MAX_PDU_LEAST {
            return Err(MaxPduError::TooSmall {
                dif: dif.clone(),
                bytes: capacity.uncut,
                needed: MAX_PDU_LEAST + reserve,
            });
        }
        least = least.min(bytes);
    }
    Ok(least as u32)
}

/// Determines the longest PDU of a DIF, for a new member that has the DIF's configuration from the
/// start. Returns the N-1 DIF to wait for if its capacity is not known yet.
///
/// # Errors
/// An N-1 DIF cannot carry the configured length, or cannot carry any valid one.
pub(crate) fn resolve_max_pdu(
    new: &MemberSpec,
    config: &mut DifConfig,
    capacity_in: CapacityIn<'_>,
) -> Result<Option<DifName>, MaxPduError> {
    if config.max_pdu != 0 {
        let max_pdu = config.max_pdu;
        let conflict = |below| capacity_in(below)?.conflict(&new.name, max_pdu, below);
        return match new.over.iter().find_map(conflict) {
            Some(what) => Err(MaxPduError::Conflict(what)),
            None => Ok(None),
        };
    }
    if new.role == DifRole::Join {
        return Ok(None);
    }
    match longest_pdu(&new.over, config, capacity_in) {
        Ok(bytes) => {
            config.max_pdu = bytes;
            Ok(None)
        }
        Err(MaxPduError::Unknown(dif)) => Ok(Some(dif)),
        Err(error) => Err(error),
    }
}

/// Bytes reserved for what SDU protection adds to a PDU.
const PROTECTION_RESERVE: usize = 64;

/// Smallest value for the longest PDU of a DIF, in bytes.
const MAX_PDU_LEAST: usize = 128;
/// Largest value for the longest PDU of a DIF, in bytes.
const PDU_BYTES_MAX: usize = 65_535;
