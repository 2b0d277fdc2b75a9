//! Which kind of flow carries a packet, by its differentiated services code point.

use carina_api::FlowSpec;
use serde::{Deserialize, Serialize};

/// The classes of packets. Each class has flows of its own to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Packets without special treatment: a flow that keeps the order and has flow control.
    Default,
    /// Voice and control traffic: a flow that promises a low delay, if the DIF has one.
    LowDelay,
    /// Background transfers: flows without an order.
    Background,
}

impl Class {
    /// The class of a code point. (RFC 4594 §3, RFC 8622 §4)
    #[must_use]
    pub fn of_dscp(dscp: u8) -> Class {
        match dscp {
            // EF, voice-admit, CS5, CS6, CS7.
            46 | 44 | 40 | 48 | 56 => Class::LowDelay,
            // LE, CS1.
            1 | 8 => Class::Background,
            _ => Class::Default,
        }
    }

    /// What the member asks of the DIF for a flow of this class.
    #[must_use]
    pub fn spec(self) -> FlowSpec {
        match self {
            Class::Default => FlowSpec::flow_controlled(),
            Class::LowDelay => FlowSpec {
                max_delay_us: LOW_DELAY_US,
                ..FlowSpec::unreliable()
            },
            Class::Background => FlowSpec::unreliable(),
        }
    }

    /// Returns the class's name in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Default => "default",
            Class::LowDelay => "low-delay",
            Class::Background => "background",
        }
    }
}

/// Delay that a flow for voice and control traffic must promise, in microseconds.
const LOW_DELAY_US: u32 = 10_000;
