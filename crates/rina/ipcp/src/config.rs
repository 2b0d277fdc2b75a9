//! Configuration of a DIF and of one member.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use carina_wire::dif::{Dialect, PduType, Syntax, Widths};
use serde::{Deserialize, Serialize};

use crate::scalar::Scalar;

/// Configuration of one IPCP, given when the IPCP is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the IPCP, unique in the DIF. N-1 DIFs know the IPCP by it as an application name.
    pub name: String,
    /// Name of the DIF that the IPCP is, or becomes, a member of.
    pub dif: String,
    /// Dialect of the DIF: decides the layout of PDUs and the protocols of layer management.
    pub dialect: Dialect,
    /// The DIF's configuration; `None` for a member that gets the configuration at enrollment. In
    /// [`Dialect::Native`] only the first member has one here. In [`Dialect::Rlite`] a joining
    /// member may have one. In [`Dialect::Irati`] every member has one.
    pub dif_config: Option<DifConfig>,
}

/// The configuration that all members of a DIF share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DifConfig {
    /// Widths of the fields of the PCI, in bytes.
    pub widths: FieldWidths,
    /// Longest PDU in bytes, PCI included and SDU protection excluded. 0: derived. An IPC manager
    /// that knows the N-1 DIFs replaces 0 before the DIF starts; otherwise data transfer uses what
    /// the N-1 flow of the first neighbour carries, at most 65,535.
    pub max_pdu: u32,
    /// Maximum PDU lifetime (MPL of delta-t), in milliseconds: no PDU exists longer in the DIF.
    pub max_pdu_lifetime_ms: u32,
    /// Hop limit: largest number of hops (N-1 flows) that a PDU may take.
    pub hop_limit: u8,
    /// The delimiter may put several small SDUs into one PDU.
    pub concatenation: bool,
    /// Keep-alive interval between neighbours, in milliseconds. A neighbour is lost after three
    /// missed keep-alives.
    pub keepalive_ms: u32,
    /// QoS cubes, in the order in which they are tried for a flow. Empty: the five standard cubes.
    pub cubes: Vec<QosCube>,
    /// Policies that differ from the default of their component, by component name.
    pub policies: BTreeMap<String, PolicySpec>,
}

/// Widths of PCI fields in bytes, as a configuration file writes [`Widths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FieldWidths {
    /// Addresses: 1, 2, 4 or 8 bytes. The ranges of this struct are those of native DIFs: rlite
    /// takes 1, 2, 4 or 8 for every field; IRATI takes 1, 2 or 4, with control sequence numbers as
    /// wide as sequence numbers.
    pub address: u8,
    /// Width of CEP-ids: 1, 2 or 4 bytes.
    pub cep: u8,
    /// Width of QoS-ids: 1 or 2 bytes.
    pub qos: u8,
    /// Width of the sequence numbers of data PDUs: 2, 4 or 8 bytes.
    pub seq: u8,
    /// Width of the sequence numbers of control PDUs: 2, 4 or 8 bytes.
    pub ctrl_seq: u8,
    /// Width of the PDU length: 2 or 4 bytes.
    pub length: u8,
    /// Width of the rates of flow control: 4 bytes.
    pub rate: u8,
    /// Width of the time frames of rates: 4 bytes.
    pub frame: u8,
}

/// A policy chosen by name, with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySpec {
    /// Name of the policy in the catalogue.
    pub name: String,
    /// Parameters as names and values. Absent parameters have their defaults. The policy checks the
    /// values.
    pub params: BTreeMap<String, String>,
}

impl PolicySpec {
    /// Returns the policy after a change: field `name` selects the policy, the other fields set
    /// parameters. Parameters that are not in `fields` keep their values, unless `name` selects
    /// another policy.
    #[must_use]
    pub fn changed(&self, fields: &[(String, Scalar)]) -> PolicySpec {
        let mut spec = self.clone();
        if let Some((_, name)) = fields.iter().find(|(field, _)| field == "name") {
            let name = name.to_text();
            if spec.name != name {
                spec.params.clear();
            }
            spec.name = name;
        }
        let params = fields.iter().filter(|(field, _)| field != "name");
        spec.params
            .extend(params.map(|(name, value)| (name.clone(), value.to_text())));
        spec
    }
}

/// A class of service that the DIF offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosCube {
    /// QoS-id of the cube in the PCI, 1 or more.
    pub id: u16,
    /// Name of the cube, for people to read.
    pub name: String,
    /// The receiver delivers SDUs in the order in which they were written.
    #[serde(default)]
    pub in_order: bool,
    /// The sender retransmits lost PDUs: no SDU is lost unless the flow fails.
    #[serde(default)]
    pub retransmission: bool,
    /// Parameters of window-based flow control; `None` for no such control.
    #[serde(default)]
    pub window: Option<WindowConfig>,
    /// Rate-based flow control, in PDUs per time frame; `None` for none.
    #[serde(default)]
    pub rate: Option<RateConfig>,
    /// Number of consecutive SDUs that may be missing before delivery waits for them; `None`: any
    /// number.
    #[serde(default)]
    pub max_sdu_gap: Option<u64>,
    /// The receiver may deliver the parts of an SDU that arrived when the rest is lost.
    #[serde(default)]
    pub partial_delivery: bool,
    /// Priority of the cube's queue in the RMT under `strict-priority`: 0 is served first.
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Weight of the cube's queue in the RMT under `weighted-fair`: queues share an N-1 flow in
    /// proportion to their weights.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// Relays may set the congestion flag (ECN) of a PDU in a long queue instead of dropping the
    /// PDU.
    #[serde(default)]
    pub ecn: bool,
    /// Initial value of the A timer in milliseconds: longest delay of an acknowledgement.
    #[serde(default = "default_a")]
    pub initial_a_ms: u32,
    /// Longest time for which the sender retransmits a PDU before the flow fails, in milliseconds
    /// (R of delta-t).
    #[serde(default = "default_r")]
    pub retransmit_ms: u32,
    /// Longest delay that the cube promises, in microseconds; 0: no promise.
    #[serde(default)]
    pub max_delay_us: u32,
    /// Largest share of lost SDUs that the cube promises, in 1/10000; 10000: no promise.
    #[serde(default = "default_loss")]
    pub max_loss: u16,
}

/// Parameters of window-based flow control, in PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WindowConfig {
    /// Largest number of PDUs that the receiver allows to be sent and not yet acknowledged.
    pub credit_max: u32,
    /// Number of PDUs that the sender may send before it has received a control PDU with a window.
    pub initial_credit: u32,
}

/// Parameters of rate-based flow control: so many PDUs in each time frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// Number of PDUs that the sender may send in each time frame; 1 or more.
    pub pdus: u32,
    /// Length of the time frame in milliseconds; 1 or more.
    pub frame_ms: u32,
}

impl Default for DifConfig {
    fn default() -> DifConfig {
        DifConfig {
            widths: FieldWidths::default(),
            max_pdu: 0,
            max_pdu_lifetime_ms: 2_000,
            hop_limit: 64,
            concatenation: true,
            keepalive_ms: 5_000,
            cubes: Vec::new(),
            policies: BTreeMap::new(),
        }
    }
}

impl DifConfig {
    /// The default configuration of a DIF of this dialect. A native DIF has no cubes here: its
    /// first member adds the standard cubes at bootstrap. The values of the other dialects are
    /// those of rlite's kernel modules and of IRATI's `default.dif`.
    #[must_use]
    pub fn of_dialect(dialect: Dialect) -> DifConfig {
        let native = DifConfig {
            widths: dialect.widths().into(),
            ..DifConfig::default()
        };
        let bare = PolicySpec {
            name: "none".to_string(),
            params: BTreeMap::new(),
        };
        let policies = BTreeMap::from([(component::DELIMITING.to_string(), bare)]);
        match dialect {
            Dialect::Rlite => DifConfig {
                max_pdu_lifetime_ms: 4_000,
                concatenation: false,
                keepalive_ms: 20_000,
                cubes: rlite_cubes(),
                policies,
                ..native
            },
            Dialect::Irati => DifConfig {
                max_pdu: 1_470,
                max_pdu_lifetime_ms: 60_000,
                concatenation: false,
                keepalive_ms: 30_000,
                cubes: irati_cubes(),
                policies,
                ..native
            },
            _ => native,
        }
    }
}

impl DifConfig {
    /// Whether the delimiting policy of the DIF fragments SDUs, so that flows carry SDUs longer
    /// than one PDU.
    #[must_use]
    pub fn fragments(&self) -> bool {
        let spec = self.policies.get(component::DELIMITING);
        spec.is_none_or(|spec| spec.name != "none")
    }

    /// Returns the length of the longest SDU that fits in one PDU of `max_pdu` bytes, in bytes.
    #[must_use]
    pub fn sdu_in_one_pdu(&self, dialect: Dialect, max_pdu: usize) -> usize {
        let syntax = Syntax {
            dialect,
            widths: self.widths.into(),
        };
        let header = if self.fragments() {
            carina_efcp::delimiting::WHOLE_HEADER
        } else {
            0
        };
        max_pdu.saturating_sub(syntax.pci_bytes(PduType::Data) + header)
    }
}

/// rlite has no cubes, only policies of each flow. These two cubes stand for the two sets of
/// policies that rlite's flow allocator derives from a flow specification. Both have QoS-id 0 on
/// the wire.
fn rlite_cubes() -> Vec<QosCube> {
    vec![
        QosCube {
            initial_a_ms: 0,
            ..QosCube::plain(1, "best-effort")
        },
        QosCube {
            in_order: true,
            retransmission: true,
            window: Some(WindowConfig {
                credit_max: 512,
                initial_credit: 512,
            }),
            max_sdu_gap: Some(0),
            // 10 retransmissions, each after the initial timeout of one second.
            retransmit_ms: 10_000,
            ..QosCube::plain(2, "reliable")
        },
    ]
}

/// The cubes of IRATI's `default.dif`.
fn irati_cubes() -> Vec<QosCube> {
    let window = Some(WindowConfig {
        credit_max: 50,
        initial_credit: 50,
    });
    vec![
        QosCube {
            in_order: true,
            window,
            initial_a_ms: 300,
            ..QosCube::plain(1, "unreliablewithflowcontrol")
        },
        QosCube {
            in_order: true,
            retransmission: true,
            window,
            max_sdu_gap: Some(0),
            initial_a_ms: 300,
            // Five retransmissions with IRATI's back-off: 1 + 2 + 5 + 10 + 17 seconds.
            retransmit_ms: 35_000,
            ..QosCube::plain(2, "reliablewithflowcontrol")
        },
    ]
}

impl QosCube {
    /// Makes a cube with QoS-id `id` that promises nothing; every other field has its default.
    #[must_use]
    pub fn plain(id: u16, name: &str) -> QosCube {
        QosCube {
            id,
            name: name.to_string(),
            in_order: false,
            retransmission: false,
            window: None,
            rate: None,
            max_sdu_gap: None,
            partial_delivery: false,
            priority: default_priority(),
            weight: default_weight(),
            ecn: false,
            initial_a_ms: default_a(),
            retransmit_ms: default_r(),
            max_delay_us: 0,
            max_loss: default_loss(),
        }
    }
}

impl Default for FieldWidths {
    fn default() -> FieldWidths {
        Widths::default().into()
    }
}

impl From<Widths> for FieldWidths {
    fn from(widths: Widths) -> FieldWidths {
        let Widths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        } = widths;
        FieldWidths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        }
    }
}

impl From<FieldWidths> for Widths {
    fn from(widths: FieldWidths) -> Widths {
        let FieldWidths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        } = widths;
        Widths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        }
    }
}

impl Default for WindowConfig {
    fn default() -> WindowConfig {
        WindowConfig {
            credit_max: 4096,
            initial_credit: 64,
        }
    }
}

fn default_priority() -> u8 {
    2
}

fn default_weight() -> u16 {
    1
}

fn default_a() -> u32 {
    20
}

fn default_r() -> u32 {
    30_000
}

fn default_loss() -> u16 {
    10_000
}

/// Names of the components that have policies; each comment says what the policy decides.
pub mod component {
    /// Component that decides how many PDUs a sender keeps in flight.
    pub const CONGESTION_CONTROL: &str = "congestion-control";
    /// Component that decides how a sender estimates the round-trip time.
    pub const RTT_ESTIMATION: &str = "rtt-estimation";
    /// Component that decides which PDU an N-1 flow sends next.
    pub const RMT_SCHEDULING: &str = "rmt-scheduling";
    /// Whether a relayed PDU that meets a long queue is queued, marked or dropped.
    pub const RMT_QUEUE: &str = "rmt-queue";
    /// Component that decides which of several next hops a PDU takes.
    pub const FORWARDING: &str = "forwarding";
    /// Component that decides how forwarding tables are computed.
    pub const ROUTING: &str = "routing";
    /// Component that decides which address a new member gets.
    pub const ADDRESS_ASSIGNMENT: &str = "address-assignment";
    /// Component that decides how a member finds out where an application is registered.
    pub const DIRECTORY: &str = "directory";
    /// Component that decides which QoS cube serves a flow specification.
    pub const QOS_SELECTION: &str = "qos-selection";
    /// Component that decides how two IPCPs prove their identities when they connect.
    pub const AUTHENTICATION: &str = "authentication";
    /// Component that decides which IPCP may join and which applications may allocate flows.
    pub const ACCESS_CONTROL: &str = "access-control";
    /// How PDUs on an N-1 flow are protected: checksum, encryption, lifetime, compression.
    pub const SDU_PROTECTION: &str = "sdu-protection";
    /// Whether the PCI of each PDU has a checksum, in dialects with room for one.
    pub const PCI_CHECKSUM: &str = "pci-checksum";
    /// How SDUs are fragmented and concatenated into user-data fields.
    pub const DELIMITING: &str = "delimiting";
    /// Component that decides the time limits and retries of the procedure by which an IPCP joins.
    pub const ENROLLMENT: &str = "enrollment";
}
