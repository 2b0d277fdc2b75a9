//! Differences between the dialects in data transfer, besides the layout of the PCI.
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

/// Hop limit of PDUs between two neighbours in a native DIF. Such a PDU is never relayed. Its PCI
/// has the default widths in every DIF, because two IPCPs that connect need not know the DIF's
/// widths yet.
pub(super) const NEIGHBOUR: u8 = 0;

/// The values of the hop limit that have a meaning of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct HopLimits {
    /// Hop limit of PDUs between neighbours; `u16::MAX` in dialects without such a value.
    pub(super) neighbour: u16,
    /// A PDU with this hop limit is not relayed any further.
    pub(super) last: u8,
    /// Initial hop limit of PDUs while the DIF's configuration is not known.
    pub(super) initial: u8,
}

/// The hop limits of a dialect.
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
        // IRATI treats 0 as an invalid QoS-id.
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

/// The window in PDUs that a credit of `credit` allows.
pub(super) fn window_of(dialect: Dialect, credit: u32) -> u32 {
    match dialect {
        // rlite may also send the PDU at the right window edge.
        Dialect::Rlite => credit.saturating_add(1),
        _ => credit,
    }
}

/// The EFCP variant of a dialect.
pub(super) fn efcp_profile(dialect: Dialect) -> EfcpProfile {
    match dialect {
        Dialect::Rlite => EfcpProfile::RLITE,
        Dialect::Irati => EfcpProfile::IRATI,
        _ => EfcpProfile::default(),
    }
}

/// How often EFCP acknowledges in a dialect.
pub(super) fn acknowledgements(dialect: Dialect) -> AckPolicy {
    match dialect {
        Dialect::Irati => AckPolicy { every: 1, burst: 1 },
        _ => AckPolicy::default(),
    }
}

/// True when control PDUs of the dialect have fields for rates.
pub(super) fn has_rates(dialect: Dialect) -> bool {
    dialect != Dialect::Rlite
}

/// True when PDUs between neighbours have a form of their own, and pinned connections exist.
pub(super) fn has_channels(dialect: Dialect) -> bool {
    dialect == Dialect::Native
}
