//! The field names of objects in DIFs of rlite and IRATI. The class of an object selects them.
//! Classes of rlite begin with a small letter, those of IRATI with a capital letter.

/// A field of a message.
pub(super) struct Field {
    pub number: u64,
    pub name: &'static str,
    pub kind: Kind,
}

/// The kind of value that a field holds.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// An unsigned number.
    Number,
    /// A number that may be negative.
    Signed,
    /// A boolean.
    Flag,
    /// A floating-point number of 8 bytes.
    Fraction,
    /// Text.
    Text,
    /// Bytes whose meaning depends on another field.
    Bytes,
    /// A nested message.
    Message(&'static [Field]),
}

use Kind::{Bytes, Flag, Fraction, Message, Number, Signed, Text};

const fn field(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind }
}

/// The fields of the value of an object of this class; `None` for an unknown class.
pub(super) fn of_class(class: &str) -> Option<&'static [Field]> {
    Some(match class {
        "enrollment" => ENROLLMENT_INFO,
        "dtconstants" | "DataTransfer" => CONSTANTS,
        "neigh_entries" => NEIGHBOUR_ENTRIES,
        "dft_entries" => DFT_ENTRIES,
        "lfdb_entries" => LOWER_FLOWS,
        "aa_entries" => ADDRESSES,
        "aareq" => ADDRESS,
        "flow" => RLITE_FLOW,
        "a_data" => A_DATA,
        "Enrollment" => ENROLLMENT,
        "Neighbors" => NEIGHBOURS,
        "Neighbor" | "OperationalStatus" => NEIGHBOUR,
        "DirectoryForwardingTable" => DIRECTORY,
        "DirectoryForwardingTableEntry" => DIRECTORY_ENTRY,
        "FlowStateObjects" | "FlowStateObject" => FLOW_STATES,
        "Flow" => IRATI_FLOW,
        "QoSCubes" => CUBES,
        "watchdog_timer" => PLAIN_NUMBER,
        _ => return None,
    })
}

/// An application name in four parts, of which three are mostly empty.
const NAME: &[Field] = &[
    field(1, "ap", Text),
    field(2, "api", Text),
    field(3, "ae", Text),
    field(4, "aei", Text),
];

const CONSTANTS: &[Field] = &[
    field(1, "max_pdu", Number),
    field(2, "address_bytes", Number),
    field(3, "port_bytes", Number),
    field(4, "cep_bytes", Number),
    field(5, "qos_bytes", Number),
    field(6, "seq_bytes", Number),
    field(7, "length_bytes", Number),
    field(8, "rollover", Number),
    field(9, "max_pdu_lifetime_ms", Number),
    field(10, "concatenation", Flag),
    field(11, "fragmentation", Flag),
    field(12, "integrity", Flag),
    field(13, "max_retransmit_ms", Number),
    field(14, "max_ack_ms", Number),
    field(15, "rate_bytes", Number),
    field(16, "frame_bytes", Number),
    field(17, "ctrl_seq_bytes", Number),
];

const ENROLLMENT_INFO: &[Field] = &[
    field(1, "address", Number),
    field(2, "lower_difs", Text),
    field(3, "start_early", Flag),
    field(4, "constants", Message(CONSTANTS)),
];

const NEIGHBOUR_ENTRIES: &[Field] = &[field(
    1,
    "neighbour",
    Message(&[
        field(1, "ipcp", Text),
        field(2, "instance", Text),
        field(3, "address", Number),
        field(4, "lower_difs", Text),
    ]),
)];

const DFT_ENTRIES: &[Field] = &[field(
    1,
    "entry",
    Message(&[
        field(1, "app", Message(NAME)),
        field(2, "ipcp", Text),
        field(3, "seq", Number),
    ]),
)];

const LOWER_FLOWS: &[Field] = &[field(
    1,
    "lower_flow",
    Message(&[
        field(1, "local", Text),
        field(2, "remote", Text),
        field(3, "cost", Number),
        field(4, "seq", Number),
        field(5, "is_up", Flag),
        field(6, "age_s", Number),
    ]),
)];

const ADDRESS: &[Field] = &[field(1, "ipcp", Text), field(2, "address", Number)];
const ADDRESSES: &[Field] = &[field(1, "entry", Message(ADDRESS))];

const A_DATA: &[Field] = &[
    field(1, "src", Number),
    field(2, "dst", Number),
    field(3, "message", Bytes),
];

const CONNECTION: &[Field] = &[
    field(1, "qos", Number),
    field(2, "src_cep", Number),
    field(3, "dst_cep", Number),
];

const QOS: &[Field] = &[
    field(1, "name", Text),
    field(2, "id", Number),
    field(3, "bandwidth", Number),
    field(4, "sdu_rate", Number),
    field(5, "peak_bandwidth_ms", Number),
    field(6, "peak_sdu_ms", Number),
    field(7, "bit_errors", Fraction),
    field(8, "partial_delivery", Flag),
    field(9, "in_order", Flag),
    field(10, "max_sdu_gap", Signed),
    field(11, "delay", Number),
    field(12, "jitter", Number),
    field(13, "extra", Message(PARAMETER)),
    field(14, "msg_boundaries", Flag),
    field(15, "loss", Number),
];

const PARAMETER: &[Field] = &[field(1, "name", Text), field(2, "value", Text)];

const POLICY: &[Field] = &[
    field(1, "name", Text),
    field(2, "implementation", Text),
    field(3, "version", Text),
    field(4, "parameter", Message(PARAMETER)),
];

const WINDOW: &[Field] = &[
    field(1, "max_closed_queue", Number),
    field(2, "initial_credit", Number),
    field(3, "policy", Message(POLICY)),
    field(4, "policy_2", Message(POLICY)),
];

const RATE: &[Field] = &[
    field(1, "sender_rate", Number),
    field(2, "period_ms", Number),
    field(3, "policy", Message(POLICY)),
    field(4, "policy_2", Message(POLICY)),
    field(5, "policy_3", Message(POLICY)),
];

const FLOW_CONTROL: &[Field] = &[
    field(1, "by_window", Flag),
    field(2, "window", Message(WINDOW)),
    field(3, "by_rate", Flag),
    field(4, "rate", Message(RATE)),
];

const RETRANSMISSION: &[Field] = &[
    field(1, "max_time", Number),
    field(2, "max_count", Number),
    field(9, "initial_timeout_ms", Number),
];

const DTCP: &[Field] = &[
    field(1, "flow_control", Flag),
    field(2, "flow_control_config", Message(FLOW_CONTROL)),
    field(3, "retransmission", Flag),
    field(4, "retransmission_config", Message(RETRANSMISSION)),
    field(5, "policy", Message(POLICY)),
    field(6, "policy_2", Message(POLICY)),
    field(7, "policy_set", Message(POLICY)),
];

const RLITE_FLOW: &[Field] = &[
    field(1, "src_app", Message(NAME)),
    field(2, "dst_app", Message(NAME)),
    field(3, "src_port", Number),
    field(4, "dst_port", Number),
    field(5, "src_ipcp", Text),
    field(6, "dst_ipcp", Text),
    field(7, "connection", Message(CONNECTION)),
    field(8, "current", Number),
    field(9, "state", Number),
    field(10, "qos", Message(QOS)),
    field(
        11,
        "policies",
        Message(&[
            field(1, "dtcp_present", Flag),
            field(2, "dtcp", Message(DTCP)),
            field(6, "rollover", Number),
            field(7, "initial_a_ms", Number),
        ]),
    ),
    field(12, "access_control", Bytes),
    field(13, "max_retries", Number),
    field(14, "retries", Number),
    field(15, "hop_count", Number),
];

const ENROLLMENT: &[Field] = &[
    field(1, "address", Number),
    field(2, "lower_difs", Text),
    field(3, "start_early", Flag),
    field(4, "token", Text),
];

const NEIGHBOUR: &[Field] = &[
    field(1, "ipcp", Text),
    field(2, "instance", Text),
    field(3, "ae", Text),
    field(4, "aei", Text),
    field(5, "address", Number),
    field(6, "lower_difs", Text),
];
const NEIGHBOURS: &[Field] = &[field(1, "neighbour", Message(NEIGHBOUR))];

const DIRECTORY_ENTRY: &[Field] = &[
    field(1, "app", Message(NAME)),
    field(2, "address", Number),
    field(3, "seq", Number),
];
const DIRECTORY: &[Field] = &[field(1, "entry", Message(DIRECTORY_ENTRY))];

const FLOW_STATES: &[Field] = &[field(
    1,
    "flow_state",
    Message(&[
        field(1, "ipcp", Text),
        field(2, "address", Number),
        field(3, "neighbour", Text),
        field(4, "neighbour_address", Number),
        field(5, "cost", Number),
        field(6, "seq", Number),
        field(7, "is_up", Flag),
        field(8, "age", Number),
    ]),
)];

const DTP: &[Field] = &[
    field(1, "dtcp_present", Flag),
    field(3, "policy", Message(POLICY)),
    field(4, "policy_2", Message(POLICY)),
    field(5, "policy_3", Message(POLICY)),
    field(6, "rollover", Number),
    field(7, "initial_a_ms", Number),
    field(8, "policy_set", Message(POLICY)),
];

const IRATI_FLOW: &[Field] = &[
    field(1, "src_app", Message(NAME)),
    field(2, "dst_app", Message(NAME)),
    field(3, "src_port", Number),
    field(4, "dst_port", Number),
    field(5, "src_address", Number),
    field(6, "dst_address", Number),
    field(7, "connection", Message(CONNECTION)),
    field(8, "current", Number),
    field(9, "state", Number),
    field(10, "qos", Message(QOS)),
    field(12, "dtp", Message(DTP)),
    field(13, "dtcp", Message(DTCP)),
    field(14, "access_control", Bytes),
    field(15, "max_retries", Number),
    field(16, "retries", Number),
    field(17, "hop_count", Number),
];

const CUBES: &[Field] = &[field(
    1,
    "cube",
    Message(&[
        field(1, "id", Number),
        field(2, "name", Text),
        field(3, "bandwidth", Number),
        field(4, "sdu_rate", Number),
        field(5, "peak_bandwidth_ms", Number),
        field(6, "peak_sdu_ms", Number),
        field(7, "bit_errors", Fraction),
        field(8, "partial_delivery", Flag),
        field(9, "in_order", Flag),
        field(10, "max_sdu_gap", Signed),
        field(11, "delay", Number),
        field(12, "jitter", Number),
        field(13, "dtp", Message(DTP)),
        field(14, "dtcp", Message(DTCP)),
        field(15, "loss", Number),
    ]),
)];

const PLAIN_NUMBER: &[Field] = &[field(1, "value", Number)];
