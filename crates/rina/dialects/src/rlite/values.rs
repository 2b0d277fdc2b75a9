//! Values of rlite's objects, encoded with Protocol Buffers (proto2). On receipt an absent field
//! counts as zero; fields that rlite does not write are not written.

use alloc::string::String;
use alloc::vec::Vec;

use carina_cdap::{Message as Cdap, Value};
use prost::Message;

use crate::interop::names::Name;

/// Largest number of entries in a message, as in rlite.
pub(super) const SLICE: usize = 10;

/// Largest number of entries in a message that are accepted.
pub(super) const ENTRIES_MAX: usize = 4096;

/// Longest accepted name of a member or DIF, in bytes.
pub(super) const NAME_MAX: usize = 255;

/// What joining IPCP and member exchange about an enrollment.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct EnrollmentInfo {
    #[prost(uint64, optional, tag = "1")]
    pub(super) address: Option<u64>,
    #[prost(string, repeated, tag = "2")]
    pub(super) lower_difs: Vec<String>,
    #[prost(bool, optional, tag = "3")]
    pub(super) start_early: Option<bool>,
    #[prost(message, optional, tag = "4")]
    pub(super) constants: Option<Constants>,
}

/// Constants of the DIF.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Constants {
    #[prost(uint32, optional, tag = "1")]
    pub(super) max_pdu: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) address: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) port: Option<u32>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) cep: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    pub(super) qos: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) seq: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    pub(super) length: Option<u32>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) seq_rollover: Option<u64>,
    #[prost(uint32, optional, tag = "9")]
    pub(super) max_pdu_lifetime_ms: Option<u32>,
    #[prost(bool, optional, tag = "10")]
    pub(super) concatenation: Option<bool>,
    #[prost(bool, optional, tag = "11")]
    pub(super) fragmentation: Option<bool>,
    #[prost(bool, optional, tag = "12")]
    pub(super) integrity: Option<bool>,
    #[prost(uint32, optional, tag = "13")]
    pub(super) retransmit_ms: Option<u32>,
    #[prost(uint32, optional, tag = "14")]
    pub(super) acknowledge_ms: Option<u32>,
    #[prost(uint32, optional, tag = "15")]
    pub(super) rate: Option<u32>,
    #[prost(uint32, optional, tag = "16")]
    pub(super) frame: Option<u32>,
    #[prost(uint32, optional, tag = "17")]
    pub(super) ctrl_seq: Option<u32>,
}

/// A record of a member: its name, address, and the N-1 DIFs through which it can be reached.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Candidate {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) instance: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) address: Option<u64>,
    #[prost(string, repeated, tag = "4")]
    pub(super) lower_difs: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Candidates {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<Candidate>,
}

/// A link, as one of its ends reports it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LowerFlow {
    #[prost(string, optional, tag = "1")]
    pub(super) local: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) remote: Option<String>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) cost: Option<u32>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) seq: Option<u64>,
    #[prost(bool, optional, tag = "5")]
    pub(super) state: Option<bool>,
    /// Age in seconds.
    #[prost(uint32, optional, tag = "6")]
    pub(super) age: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LowerFlows {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<LowerFlow>,
}

/// A name in four parts.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ApName {
    #[prost(string, optional, tag = "1")]
    pub(super) ap: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) api: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) ae: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) aei: Option<String>,
}

/// An entry of the directory: which member holds an application.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DirectoryEntry {
    #[prost(message, optional, tag = "1")]
    pub(super) app: Option<ApName>,
    #[prost(string, optional, tag = "2")]
    pub(super) holder: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) seq: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DirectoryEntries {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<DirectoryEntry>,
}

/// An assigned address, and the member that assigned it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AddressEntry {
    #[prost(string, optional, tag = "1")]
    pub(super) requestor: Option<String>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) address: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AddressEntries {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<AddressEntry>,
}

/// A message to a member that is not a neighbour.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AData {
    #[prost(int32, optional, tag = "1")]
    pub(super) source: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(super) destination: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(super) message: Option<Vec<u8>>,
}

/// The request for a flow, and the answer to it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FlowRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) src_app: Option<ApName>,
    #[prost(message, optional, tag = "2")]
    pub(super) dst_app: Option<ApName>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) src_port: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) dst_port: Option<u64>,
    #[prost(string, optional, tag = "5")]
    pub(super) src_ipcp: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) dst_ipcp: Option<String>,
    #[prost(message, repeated, tag = "7")]
    pub(super) connections: Vec<ConnectionIds>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) current: Option<u32>,
    #[prost(uint32, optional, tag = "9")]
    pub(super) state: Option<u32>,
    #[prost(message, optional, tag = "10")]
    pub(super) qos: Option<QosSpec>,
    #[prost(message, optional, tag = "11")]
    pub(super) policies: Option<ConnectionPolicies>,
    #[prost(bytes = "vec", optional, tag = "12")]
    pub(super) access_control: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "13")]
    pub(super) retries_max: Option<u32>,
    #[prost(uint32, optional, tag = "14")]
    pub(super) retries: Option<u32>,
    #[prost(uint32, optional, tag = "15")]
    pub(super) hops: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ConnectionIds {
    #[prost(uint32, optional, tag = "1")]
    pub(super) qos: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) src_cep: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) dst_cep: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QosSpec {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) id: Option<u32>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) avg_bandwidth: Option<u64>,
    #[prost(double, optional, tag = "7")]
    pub(super) bit_errors: Option<f64>,
    #[prost(bool, optional, tag = "8")]
    pub(super) partial_delivery: Option<bool>,
    #[prost(bool, optional, tag = "9")]
    pub(super) in_order: Option<bool>,
    #[prost(int32, optional, tag = "10")]
    pub(super) max_sdu_gap: Option<i32>,
    #[prost(uint32, optional, tag = "11")]
    pub(super) delay: Option<u32>,
    #[prost(uint32, optional, tag = "12")]
    pub(super) jitter: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ConnectionPolicies {
    #[prost(bool, optional, tag = "1")]
    pub(super) has_dtcp: Option<bool>,
    #[prost(message, optional, tag = "2")]
    pub(super) dtcp: Option<DtcpConfig>,
    #[prost(uint64, optional, tag = "6")]
    pub(super) seq_rollover: Option<u64>,
    #[prost(uint32, optional, tag = "7")]
    pub(super) initial_a_ms: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DtcpConfig {
    #[prost(bool, optional, tag = "1")]
    pub(super) has_flow_control: Option<bool>,
    #[prost(message, optional, tag = "2")]
    pub(super) flow_control: Option<FlowControl>,
    #[prost(bool, optional, tag = "3")]
    pub(super) has_retransmission: Option<bool>,
    #[prost(message, optional, tag = "4")]
    pub(super) retransmission: Option<Retransmission>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FlowControl {
    #[prost(bool, optional, tag = "1")]
    pub(super) has_window: Option<bool>,
    #[prost(message, optional, tag = "2")]
    pub(super) window: Option<Window>,
    #[prost(bool, optional, tag = "3")]
    pub(super) has_rate: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Window {
    #[prost(uint64, optional, tag = "1")]
    pub(super) closed_queue: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) initial_credit: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Retransmission {
    #[prost(uint32, optional, tag = "1")]
    pub(super) max_time_to_retry: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) retries: Option<u32>,
    #[prost(uint32, optional, tag = "9")]
    pub(super) initial_timeout_ms: Option<u32>,
}

impl From<Name> for ApName {
    fn from(name: Name) -> ApName {
        ApName {
            ap: Some(name.ap),
            api: Some(name.api),
            ae: Some(name.ae),
            aei: Some(name.aei),
        }
    }
}

impl From<ApName> for Name {
    fn from(name: ApName) -> Name {
        Name {
            ap: name.ap.unwrap_or_default(),
            api: name.api.unwrap_or_default(),
            ae: name.ae.unwrap_or_default(),
            aei: name.aei.unwrap_or_default(),
        }
    }
}

/// Decodes the structured value of a message; `None` when it is missing or malformed.
pub(super) fn value_of<T: Message + Default>(message: &Cdap) -> Option<T> {
    T::decode(message.value.as_ref()?.as_bytes()?).ok()
}

/// Encodes a structured value.
pub(super) fn value(value: &impl Message) -> Value {
    Value::Bytes(value.encode_to_vec())
}

/// True when `text` is a valid name of a member or application.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_MAX
}
