//! Values of objects: Protocol Buffers (proto3), drawn in `docs/explanation/management.md`.
//!
//! Numbers of fields are for good. Absent and zero are the same. A value that does not decode, or
//! whose content no member would write, is refused as a whole.

use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Duration;
use carina_wire::{FlowSpec, check_name};
use prost::Message;

use super::super::entries::{Entry, Key, Kind, Store};

/// What two IPCPs say of themselves while they connect.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Greeting {
    /// Version of this dialect.
    #[prost(uint32, tag = "1")]
    pub(crate) syntax: u32,
    /// Chosen by the initiator for this attempt.
    #[prost(fixed64, tag = "2")]
    pub(crate) nonce: u64,
    /// Chosen by the responder; 0 in M_CONNECT.
    #[prost(fixed64, tag = "3")]
    pub(crate) responder_nonce: u64,
    /// Number of the message in the exchange: even ones are the initiator's.
    #[prost(uint32, tag = "4")]
    pub(crate) step: u32,
    /// Name of the DIF.
    #[prost(string, tag = "5")]
    pub(crate) dif: String,
    /// Identity of the DIF, drawn at bootstrap; 0 from an IPCP that is no member.
    #[prost(fixed64, tag = "6")]
    pub(crate) dif_id: u64,
    /// Address of a member.
    #[prost(uint64, tag = "7")]
    pub(crate) address: u64,
    /// Members that a member knows of, itself included.
    #[prost(uint32, tag = "8")]
    pub(crate) members: u32,
    /// Longest SDU that the N-1 flow carries, as this side sees it.
    #[prost(uint32, tag = "9")]
    pub(crate) sdu_max: u32,
    /// Longest PDU of the DIF; 0 from an IPCP that is no member.
    #[prost(uint32, tag = "10")]
    pub(crate) max_pdu: u32,
    /// Changes with each start of the IPCP.
    #[prost(fixed64, tag = "11")]
    pub(crate) incarnation: u64,
    /// Authentication policy; empty for "tell me yours".
    #[prost(string, tag = "12")]
    pub(crate) mechanism: String,
    /// Message of the authentication policy.
    #[prost(bytes = "vec", optional, tag = "13")]
    pub(crate) token: Option<Vec<u8>>,
    /// Name of the IPCP.
    #[prost(string, tag = "14")]
    pub(crate) name: String,
    /// Others can listen to the N-1 flow or write to it.
    #[prost(bool, tag = "15")]
    pub(crate) is_exposed: bool,
}

/// A piece of a value that is longer than a PDU.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Piece {
    /// Where it begins, in bytes.
    #[prost(uint32, tag = "1")]
    pub(crate) offset: u32,
    /// Length of the whole in bytes.
    #[prost(uint32, tag = "2")]
    pub(crate) total: u32,
    /// The bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) bytes: Vec<u8>,
}

/// The management channel of an N-1 flow.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ChannelEnd {
    /// Nonces of the attempt.
    #[prost(fixed64, tag = "1")]
    pub(crate) nonce: u64,
    #[prost(fixed64, tag = "2")]
    pub(crate) responder_nonce: u64,
    /// CEP-id of this end.
    #[prost(uint32, tag = "3")]
    pub(crate) cep: u32,
}

/// Joining.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EnrollmentRequest {
    /// Name of the IPCP that joins.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// In M_START the address that it had, 0 for none; in M_START_R the one that it gets.
    #[prost(uint64, tag = "2")]
    pub(crate) address: u64,
    /// Identity of the DIF.
    #[prost(fixed64, tag = "3")]
    pub(crate) dif_id: u64,
    /// Incarnation of the IPCP that joins.
    #[prost(fixed64, tag = "4")]
    pub(crate) incarnation: u64,
}

/// A member, as all members know it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MemberValue {
    /// Its address.
    #[prost(uint64, tag = "1")]
    pub(crate) address: u64,
    /// Changes with each start.
    #[prost(fixed64, tag = "2")]
    pub(crate) incarnation: u64,
    /// How many incarnations of the name there were before, as far as this one knew when it joined.
    #[prost(uint64, tag = "3")]
    pub(crate) generation: u64,
    /// Another incarnation that this one has heard of, 0 for none.
    #[prost(fixed64, tag = "4")]
    pub(crate) conflicting_incarnation: u64,
}

impl MemberValue {
    /// What is held of the member of this name.
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

/// Digests of entries by origin: of the origins after `after` and up to `last` (to the end when
/// it is empty), the sender knows these and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) after: String,
    pub(crate) last: String,
    /// The sender has seen the receiver's digests and wants no further answer.
    pub(crate) is_answer: bool,
    pub(crate) digests: Vec<(String, u64)>,
}

/// A flow, as the members at both ends know it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FlowObject {
    /// Calling application.
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    /// Called application.
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
    /// What was asked for.
    #[prost(message, optional, tag = "7")]
    pub(crate) spec: Option<SpecValue>,
    /// Incarnation of the member that wrote this.
    #[prost(fixed64, tag = "8")]
    pub(crate) incarnation: u64,
    /// Name of the member that wrote this.
    #[prost(string, tag = "9")]
    pub(crate) member: String,
}

/// A flow specification; the fields are those of [`FlowSpec`].
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

/// The end of a flow.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FlowEnd {
    /// Everything that was written has arrived.
    #[prost(bool, tag = "1")]
    pub(crate) is_graceful: bool,
    /// Why, for people.
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
    /// Incarnation of the member that ends it.
    #[prost(fixed64, tag = "3")]
    pub(crate) incarnation: u64,
}

/// New ends of a flow's connection.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ConnectionRenewal {
    /// CEP-id that it replaces, at the writer's side.
    #[prost(uint32, tag = "1")]
    pub(crate) old_cep: u32,
    /// CEP-id of the new connection at the writer's side.
    #[prost(uint32, tag = "2")]
    pub(crate) new_cep: u32,
    /// Address of the writer.
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
}

/// Members that have an application registered.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Registrants {
    /// Their names.
    #[prost(string, repeated, tag = "1")]
    pub(crate) members: Vec<String>,
}

/// One message of an answer in several.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Part {
    /// Which, from 0.
    #[prost(uint32, tag = "1")]
    pub(crate) index: u32,
    /// Of how many.
    #[prost(uint32, tag = "2")]
    pub(crate) total: u32,
    /// Bytes of an encoded list of objects.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) bytes: Vec<u8>,
}

/// Writes a value.
pub(crate) fn encode(value: &impl Message) -> Vec<u8> {
    value.encode_to_vec()
}

/// Reads a value.
pub(crate) fn decode<T: Message + Default>(bytes: &[u8]) -> Option<T> {
    T::decode(bytes).ok()
}

/// Writes replicated entries.
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

/// Reads replicated entries; `None` when one of them is malformed.
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

/// Writes digests by origin.
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

/// Reads digests by origin.
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
    /// The specification; `None` when a field is out of range.
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
