//! Values of objects, encoded with Protocol Buffers (proto3). `docs/explanation/management.md`
//! shows the messages.
//!
//! Field numbers never change. Absent and zero are equal. A value that does not decode, or with
//! content that no member would write, is rejected as a whole.

use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Duration;
use carina_wire::{FlowSpec, check_name};
use prost::Message;

use super::super::entries::{Entry, Key, Kind, Store};

/// What an IPCP says about itself in the exchange between neighbours.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Greeting {
    /// Version of the management protocol.
    #[prost(uint32, tag = "1")]
    pub(crate) syntax: u32,
    /// Nonce that the initiator chose for this attempt.
    #[prost(fixed64, tag = "2")]
    pub(crate) nonce: u64,
    /// Nonce that the responder chose; 0 in M_CONNECT.
    #[prost(fixed64, tag = "3")]
    pub(crate) responder_nonce: u64,
    /// Number of the authentication message in the exchange; even numbers are the initiator's.
    #[prost(uint32, tag = "4")]
    pub(crate) step: u32,
    /// Name of the DIF that the sender of this greeting is a member of, or wants to join.
    #[prost(string, tag = "5")]
    pub(crate) dif: String,
    /// Identity of the DIF, drawn at bootstrap; 0 from an IPCP that is not a member.
    #[prost(fixed64, tag = "6")]
    pub(crate) dif_id: u64,
    /// Address of the member; 0 from an IPCP that is not a member.
    #[prost(uint64, tag = "7")]
    pub(crate) address: u64,
    /// Number of members that the member knows, itself included.
    #[prost(uint32, tag = "8")]
    pub(crate) members: u32,
    /// Longest SDU that the N-1 flow carries, as this side sees it, in bytes.
    #[prost(uint32, tag = "9")]
    pub(crate) sdu_max: u32,
    /// Longest PDU of the DIF in bytes; 0 from an IPCP that is not a member.
    #[prost(uint32, tag = "10")]
    pub(crate) max_pdu: u32,
    /// Incarnation of the IPCP: a random number that changes with each start.
    #[prost(fixed64, tag = "11")]
    pub(crate) incarnation: u64,
    /// Authentication policy; empty when the initiator leaves the choice to the responder.
    #[prost(string, tag = "12")]
    pub(crate) mechanism: String,
    /// Message of the authentication policy.
    #[prost(bytes = "vec", optional, tag = "13")]
    pub(crate) token: Option<Vec<u8>>,
    /// Name of the sending IPCP.
    #[prost(string, tag = "14")]
    pub(crate) name: String,
    /// Others can listen to the medium of the N-1 flow or write to it.
    #[prost(bool, tag = "15")]
    pub(crate) is_exposed: bool,
}

/// A piece of a value that is too long for one PDU.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Piece {
    /// Offset of the piece in the value, in bytes.
    #[prost(uint32, tag = "1")]
    pub(crate) offset: u32,
    /// Length of the whole value in bytes.
    #[prost(uint32, tag = "2")]
    pub(crate) total: u32,
    /// The bytes of the piece.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) bytes: Vec<u8>,
}

/// One end of the management channel of an N-1 flow, in the messages that open it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ChannelEnd {
    /// Nonces of the attempt that opens the channel.
    #[prost(fixed64, tag = "1")]
    pub(crate) nonce: u64,
    #[prost(fixed64, tag = "2")]
    pub(crate) responder_nonce: u64,
    /// CEP-id of the sender's end.
    #[prost(uint32, tag = "3")]
    pub(crate) cep: u32,
}

/// The value of M_START and M_START_R of an enrollment.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EnrollmentRequest {
    /// Name of the IPCP that joins.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// In M_START, the joining IPCP's former address, or 0. In M_START_R, the address assigned to
    /// it.
    #[prost(uint64, tag = "2")]
    pub(crate) address: u64,
    /// Identity of the DIF; 0 in M_START.
    #[prost(fixed64, tag = "3")]
    pub(crate) dif_id: u64,
    /// Incarnation of the IPCP that joins.
    #[prost(fixed64, tag = "4")]
    pub(crate) incarnation: u64,
}

/// The member entry: what all members know about one member.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MemberValue {
    /// Address of the member.
    #[prost(uint64, tag = "1")]
    pub(crate) address: u64,
    /// Incarnation of the member: a random number that changes with each start.
    #[prost(fixed64, tag = "2")]
    pub(crate) incarnation: u64,
    /// Number of earlier incarnations with the same name that this one knew of when it joined.
    #[prost(uint64, tag = "3")]
    pub(crate) generation: u64,
    /// Another incarnation with the same name that this one has heard of; 0 for none.
    #[prost(fixed64, tag = "4")]
    pub(crate) conflicting_incarnation: u64,
}

impl MemberValue {
    /// The stored member entry of the member `name`; `None` when no entry is stored.
    pub(in super::super) fn of(store: &Store, name: &str) -> Option<MemberValue> {
        decode(store.value(Kind::Member, name, name)?)
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
struct EntryValue {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    origin: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(uint64, tag = "4")]
    seq: u64,
    #[prost(bytes = "vec", optional, tag = "5")]
    value: Option<Vec<u8>>,
    #[prost(uint32, tag = "6")]
    age_ms: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct EntriesValue {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<EntryValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct DigestValue {
    #[prost(string, tag = "1")]
    origin: String,
    #[prost(fixed64, tag = "2")]
    hash: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct DigestsValue {
    #[prost(message, repeated, tag = "1")]
    digests: Vec<DigestValue>,
    #[prost(string, tag = "2")]
    after: String,
    #[prost(string, tag = "3")]
    last: String,
    #[prost(bool, tag = "4")]
    is_answer: bool,
}

/// Digests of entries by origin. They are complete for the origins after `after` and up to `last`
/// (to the end if `last` is empty): of other origins in that range, the sender has no entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) after: String,
    pub(crate) last: String,
    /// The sender answers the receiver's digests and expects no further answer.
    pub(crate) is_answer: bool,
    pub(crate) digests: Vec<(String, u64)>,
}

/// The value of a flow's request and of its answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FlowObject {
    /// Name of the calling application.
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    /// Name of the called application.
    #[prost(string, tag = "2")]
    pub(crate) destination: String,
    /// Address of the calling member.
    #[prost(uint64, tag = "3")]
    pub(crate) source_address: u64,
    /// CEP-id at the calling member.
    #[prost(uint32, tag = "4")]
    pub(crate) source_cep: u32,
    /// CEP-id at the called member; 0 in a request.
    #[prost(uint32, tag = "5")]
    pub(crate) destination_cep: u32,
    /// QoS-id of the cube.
    #[prost(uint32, tag = "6")]
    pub(crate) cube: u32,
    /// The requested flow specification.
    #[prost(message, optional, tag = "7")]
    pub(crate) spec: Option<SpecValue>,
    /// Incarnation of the member that sends this value.
    #[prost(fixed64, tag = "8")]
    pub(crate) incarnation: u64,
    /// Name of the member that sends this value.
    #[prost(string, tag = "9")]
    pub(crate) member: String,
}

/// A flow specification. The fields are those of [`FlowSpec`].
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SpecValue {
    #[prost(uint32, tag = "1")]
    max_delay_us: u32,
    #[prost(uint64, tag = "2")]
    max_sdu_gap: u64,
    #[prost(uint64, tag = "3")]
    avg_bandwidth_bps: u64,
    #[prost(uint32, tag = "4")]
    max_loss: u32,
    #[prost(bool, tag = "5")]
    in_order: bool,
    #[prost(bool, tag = "6")]
    msg_boundaries: bool,
    #[prost(uint32, tag = "7")]
    max_jitter_us: u32,
}

/// The end of a flow, in M_DELETE.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FlowEnd {
    /// All SDUs that the sender wrote were sent, or acknowledged.
    #[prost(bool, tag = "1")]
    pub(crate) is_graceful: bool,
    /// Why the sender ends the flow, as text for people.
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
    /// Incarnation of the member that ends the flow.
    #[prost(fixed64, tag = "3")]
    pub(crate) incarnation: u64,
}

/// A new connection for a flow, in M_WRITE and M_WRITE_R.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ConnectionRenewal {
    /// CEP-id of the connection to replace, at the sender of this value.
    #[prost(uint32, tag = "1")]
    pub(crate) old_cep: u32,
    /// CEP-id of the new connection at the sender of this value; 0 to request one.
    #[prost(uint32, tag = "2")]
    pub(crate) new_cep: u32,
    /// Address of the sender of this value.
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
}

/// The members where an application is registered.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Registrants {
    /// Names of the members.
    #[prost(string, repeated, tag = "1")]
    pub(crate) members: Vec<String>,
}

/// One part of an answer that needs several messages.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Part {
    /// Index of the part, from 0.
    #[prost(uint32, tag = "1")]
    pub(crate) index: u32,
    /// Number of parts.
    #[prost(uint32, tag = "2")]
    pub(crate) total: u32,
    /// Bytes of an encoded list of objects.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) bytes: Vec<u8>,
}

/// Encodes a value.
pub(crate) fn encode(value: &impl Message) -> Vec<u8> {
    value.encode_to_vec()
}

/// Decodes a value; `None` when it is malformed.
pub(crate) fn decode<T: Message + Default>(bytes: &[u8]) -> Option<T> {
    T::decode(bytes).ok()
}

/// Encodes replicated entries.
pub(crate) fn encode_entries(entries: &[Entry]) -> Vec<u8> {
    let entries = entries
        .iter()
        .map(|entry| EntryValue {
            kind: match entry.key.kind {
                Kind::Member => 1,
                Kind::Application => 2,
                Kind::Expelled => 3,
            },
            origin: entry.key.origin.clone(),
            name: entry.key.name.clone(),
            seq: entry.seq,
            value: entry.value.clone(),
            age_ms: u32::try_from(entry.age.as_millis()).unwrap_or(u32::MAX),
        })
        .collect();
    encode(&EntriesValue { entries })
}

/// Decodes replicated entries; `None` when any is malformed.
pub(crate) fn decode_entries(bytes: &[u8]) -> Option<Vec<Entry>> {
    let read = |value: EntryValue| {
        let kind = match value.kind {
            1 => Kind::Member,
            2 => Kind::Application,
            3 => Kind::Expelled,
            _ => return None,
        };
        check_name(&value.origin).ok()?;
        check_name(&value.name).ok()?;
        if kind == Kind::Member {
            let is_own = value.name == value.origin;
            let is_member = match &value.value {
                Some(bytes) => decode::<MemberValue>(bytes)?.address != 0,
                None => true,
            };
            if !is_own || !is_member {
                return None;
            }
        } else if value.value.as_ref().is_some_and(|bytes| bytes.len() > 64) {
            return None;
        }
        Some(Entry {
            key: Key {
                origin: value.origin,
                kind,
                name: value.name,
            },
            seq: value.seq,
            value: value.value,
            age: Duration::from_millis(value.age_ms.into()),
        })
    };
    decode::<EntriesValue>(bytes)?
        .entries
        .into_iter()
        .map(read)
        .collect()
}

/// Encodes digests by origin.
pub(crate) fn encode_digests(digests: Digests) -> Vec<u8> {
    encode(&DigestsValue {
        digests: digests
            .digests
            .into_iter()
            .map(|(origin, hash)| DigestValue { origin, hash })
            .collect(),
        after: digests.after,
        last: digests.last,
        is_answer: digests.is_answer,
    })
}

/// Decodes digests by origin; `None` when they are malformed.
pub(crate) fn decode_digests(bytes: &[u8]) -> Option<Digests> {
    let value: DigestsValue = decode(bytes)?;
    Some(Digests {
        after: value.after,
        last: value.last,
        is_answer: value.is_answer,
        digests: value
            .digests
            .into_iter()
            .map(|row| (row.origin, row.hash))
            .collect(),
    })
}

impl From<FlowSpec> for SpecValue {
    fn from(spec: FlowSpec) -> SpecValue {
        SpecValue {
            max_delay_us: spec.max_delay_us,
            max_sdu_gap: spec.max_sdu_gap,
            avg_bandwidth_bps: spec.avg_bandwidth_bps,
            max_loss: u32::from(spec.max_loss),
            in_order: spec.in_order,
            msg_boundaries: spec.msg_boundaries,
            max_jitter_us: spec.max_jitter_us,
        }
    }
}

impl SpecValue {
    /// Converts to a flow specification; `None` when a field is out of range.
    pub(crate) fn read(&self) -> Option<FlowSpec> {
        let max_loss = u16::try_from(self.max_loss).ok()?;
        (max_loss <= FlowSpec::MAX_LOSS).then_some(FlowSpec {
            max_delay_us: self.max_delay_us,
            max_sdu_gap: self.max_sdu_gap,
            avg_bandwidth_bps: self.avg_bandwidth_bps,
            max_loss,
            in_order: self.in_order,
            msg_boundaries: self.msg_boundaries,
            max_jitter_us: self.max_jitter_us,
        })
    }
}
