//! The settings of a member, as command lines and configuration files give them.

use std::path::PathBuf;

use carina_api::DifName;
use serde::{Deserialize, Serialize};

use crate::error::IpError;
use crate::prefix::{Address, IpPrefix};

/// Settings of a TUN interface whose packets travel over flows of a DIF: the table `[[ip]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpSettings {
    /// The DIF in which the prefixes are registered.
    pub dif: DifName,
    /// Addresses of the interface; each is registered as a prefix of its full length.
    pub address: Vec<Address>,
    /// Name of the TUN interface, such as `carina0`.
    #[serde(default = "tun")]
    pub tun: String,
    /// Further prefixes to register: networks that this system forwards packets to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefix: Vec<IpPrefix>,
    /// Prefixes that the kernel routes to the interface too, like the prefixes of `address`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub route: Vec<IpPrefix>,
    /// The network namespace of the interface: a name below `/run/netns`, or a path; `None` for the
    /// namespace of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<PathBuf>,
    /// MTU of the interface, in bytes; `None` for the longest packet that the DIF does not
    /// fragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<usize>,
    /// Time without packets after which a flow is deallocated, in milliseconds.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
    /// Prefixes whose packets get an address of this system when they leave it over another
    /// interface: source NAT by the kernel. IPv4 forwarding is turned on for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nat: Vec<IpPrefix>,
    /// Number of queues of the interface, each with a thread: 1 to 8.
    #[serde(default = "queues", skip_serializing_if = "is_one")]
    pub queues: usize,
    /// The prefixes that other members may have: these and prefixes within them. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<IpPrefix>,
}

impl IpSettings {
    /// Makes the settings of an interface with one address, with defaults for the other fields.
    #[must_use]
    pub fn new(dif: DifName, address: Address) -> IpSettings {
        IpSettings {
            dif,
            address: vec![address],
            tun: tun(),
            prefix: Vec::new(),
            route: Vec::new(),
            netns: None,
            mtu: None,
            idle_ms: IDLE_MS,
            nat: Vec::new(),
            queues: queues(),
            peers: Vec::new(),
        }
    }

    /// Whether another member may have this prefix.
    pub(crate) fn may_have(&self, prefix: IpPrefix) -> bool {
        let is_within = |all: &IpPrefix| all.covers(prefix);
        self.peers.is_empty() || self.peers.iter().any(is_within)
    }

    /// Checks the settings that can be checked without a node.
    ///
    /// # Errors
    /// A field is wrong; the error names the field, its value and what would be right.
    pub fn check(&self) -> Result<(), IpError> {
        let wrong = |field, value: String, right| {
            Err(IpError::Setting {
                field,
                value,
                right,
            })
        };
        if self.address.is_empty() {
            return wrong("address", "empty".to_owned(), "one address or more");
        }
        carina_netdev::check_interface_name(&self.tun)?;
        if let Some(mtu) = self.mtu {
            let has_v6 = self.own().iter().any(|own| matches!(own, IpPrefix::V6(_)));
            if has_v6 && mtu < MTU_MIN_V6 {
                return wrong("mtu", mtu.to_string(), "1280 to 65535 with an IPv6 address");
            }
            if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
                return wrong("mtu", mtu.to_string(), "576 to 65535");
            }
        }
        if !(IDLE_MS_MIN..=IDLE_MS_MAX).contains(&self.idle_ms) {
            return wrong("idle_ms", self.idle_ms.to_string(), "100 to 86400000");
        }
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return wrong("queues", self.queues.to_string(), "1 to 8");
        }
        Ok(())
    }

    /// Returns the prefixes that the member registers.
    #[must_use]
    pub fn own(&self) -> Vec<IpPrefix> {
        let hosts = self
            .address
            .iter()
            .map(|address| IpPrefix::host(address.address));
        let mut own: Vec<IpPrefix> = hosts.chain(self.prefix.iter().copied()).collect();
        own.sort_unstable();
        own.dedup();
        own
    }
}

fn tun() -> String {
    "carina0".to_owned()
}

fn idle_ms() -> u64 {
    IDLE_MS
}

fn queues() -> usize {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_one(count: &usize) -> bool {
    *count == 1
}

/// Default of `idle_ms`, in milliseconds.
pub const IDLE_MS: u64 = 60_000;

/// Largest number of queues. A member allocates a flow for each queue, prefix of the other member
/// and class, and accepts 64 flows of one other member.
const QUEUES_MAX: usize = 8;
const IDLE_MS_MIN: u64 = 100;
const IDLE_MS_MAX: u64 = 86_400_000;
/// Shortest MTU that IPv4 hosts must support. (RFC 791 §3.1)
const MTU_MIN: usize = 576;
/// Shortest MTU of a link with IPv6. (RFC 8200 §5)
const MTU_MIN_V6: usize = 1280;
const MTU_MAX: usize = 65_535;
