//! What data transfer does otherwise in each dialect, besides the layout of PCI.
//!
//! | | native | rlite | IRATI |
//! |---|---|---|---|
//! | PDUs between neighbours | hop limit 0, default widths | management to address 0 | the same |
//! | a relay's last hop | hop limit 1 | TTL 0 | none |
//! | QoS-id in the PCI | of the cube | 0 | of the cube; 1 for management |
//! | QoS-ids that no cube has | dropped | the first cube's class | the first cube's class |
//! | window | as many PDUs as the credit | one more: the right edge may be sent | as many |
//! | EFCP | ranges, rendezvous, rollover | [`RLITE`] | [`IRATI`] |

use carina_efcp::{AckPolicy, EfcpProfile};
use carina_wire::dif::{Dialect, QosId};

/// The hop limit of PDUs to the neighbour at the other end of an N-1 flow in a native DIF: such a
/// PDU is never relayed, and its PCI has the default widths in every DIF, because two IPCPs that
/// connect need not know the DIF's yet.
pub(super) const NEIGHBOUR: u8 = 0;

/// What a PDU's hop limit means.
#[derive(Clone, Copy, Debug)]
pub(super) struct HopLimits {
    /// That of PDUs between neighbours; more than any where they have none of their own.
    pub(super) neighbour: u16,
    /// A PDU that has it is not relayed any more.
    pub(super) last: u8,
    /// What PDUs begin with while the DIF's configuration is not known.
    pub(super) initial: u8,
}

/// See the module.
pub(super) fn hop_limits(dialect: Dialect) -> HopLimits {
    match dialect {
        Dialect::Native => HopLimits {
            neighbour: NEIGHBOUR as u16,
            last: 1,
            initial: 1,
        },
        _ => HopLimits {
            neighbour: u16::MAX,
            last: 0,
            initial: 64,
        },
    }
}

/// The QoS-id of management PDUs.
pub(super) fn management_qos(dialect: Dialect) -> QosId {
    match dialect {
        // 0 is no valid id there.
        Dialect::Irati => QosId(1),
        _ => QosId(0),
    }
}

/// The QoS-id of the PDUs of a cube's connections.
pub(super) fn qos(dialect: Dialect, cube: u16) -> QosId {
    match dialect {
        Dialect::Rlite => QosId(0),
        _ => QosId(cube),
    }
}

/// The window of PDUs that a credit stands for.
pub(super) fn window_of(dialect: Dialect, credit: u32) -> u32 {
    match dialect {
        // The edge itself may be sent.
        Dialect::Rlite => credit.saturating_add(1),
        _ => credit,
    }
}

/// What EFCP does otherwise.
pub(super) fn efcp_profile(dialect: Dialect) -> EfcpProfile {
    match dialect {
        Dialect::Rlite => EfcpProfile::RLITE,
        Dialect::Irati => EfcpProfile::IRATI,
        _ => EfcpProfile::default(),
    }
}

/// When EFCP acknowledges.
pub(super) fn acknowledgements(dialect: Dialect) -> AckPolicy {
    match dialect {
        Dialect::Irati => AckPolicy { every: 1, burst: 1 },
        _ => AckPolicy::default(),
    }
}

/// The PCI of control PDUs has rates.
pub(super) fn has_rates(dialect: Dialect) -> bool {
    dialect != Dialect::Rlite
}

/// PDUs between neighbours look different from others and go through pinned connections too.
pub(super) fn has_channels(dialect: Dialect) -> bool {
    dialect == Dialect::Native
}
