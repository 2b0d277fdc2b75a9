//! Values of objects, encoded with Protocol Buffers (version 2) as in IRATI.
//!
//! Fields marked `required` are written even when they are 0 or empty, because IRATI writes them.
//! On receipt an absent field counts as 0 or empty. Every structure, even a scalar, is encoded in
//! field 6 of an object's value.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message as Cdap, Value};
use prost::Message;

use crate::interop::names::Name;

/// Name of an application process and one of its entities.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
pub(crate) struct Naming {
    #[prost(string, required, tag = "1")]
    pub(crate) ap: String,
    #[prost(string, required, tag = "2")]
    pub(crate) api: String,
    #[prost(string, required, tag = "3")]
    pub(crate) ae: String,
    #[prost(string, required, tag = "4")]
    pub(crate) aei: String,
}

/// What joining IPCP and member exchange about an enrollment.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EnrollmentInformation {
    /// Address of the joining IPCP; 0 for none.
    #[prost(uint64, required, tag = "1")]
    pub(crate) address: u64,
    /// N-1 DIFs through which the sender can be reached.
    #[prost(string, repeated, tag = "2")]
    pub(crate) supporting_difs: Vec<String>,
    /// The joining IPCP may operate before the member has started it.
    #[prost(bool, required, tag = "3")]
    pub(crate) starts_early: bool,
    /// Random text that the member chooses and the joining IPCP returns at the end.
    #[prost(string, required, tag = "4")]
    pub(crate) token: String,
}

/// A neighbour. At the end of an enrollment, it describes the IPCP that has enrolled.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Neighbour {
    #[prost(string, required, tag = "1")]
    pub(crate) ap: String,
    #[prost(string, required, tag = "2")]
    pub(crate) api: String,
    #[prost(string, required, tag = "3")]
    pub(crate) ae: String,
    /// Entity instance; at the end of an enrollment the token.
    #[prost(string, required, tag = "4")]
    pub(crate) aei: String,
    #[prost(uint64, required, tag = "5")]
    pub(crate) address: u64,
    #[prost(string, repeated, tag = "6")]
    pub(crate) supporting_difs: Vec<String>,
}

/// A list of neighbours.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Neighbours {
    #[prost(message, repeated, tag = "1")]
    pub(crate) all: Vec<Neighbour>,
}

/// The location of an application.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DirectoryEntry {
    #[prost(message, optional, tag = "1")]
    pub(crate) name: Option<Naming>,
    #[prost(uint64, required, tag = "2")]
    pub(crate) address: u64,
    #[prost(uint32, required, tag = "3")]
    pub(crate) seq: u32,
}

/// A list of directory entries.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DirectoryEntries {
    #[prost(message, repeated, tag = "1")]
    pub(crate) all: Vec<DirectoryEntry>,
}

/// A link as one of its ends reports it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FlowState {
    #[prost(string, required, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub(crate) addresses: Vec<u64>,
    #[prost(string, required, tag = "3")]
    pub(crate) neighbour: String,
    #[prost(uint64, repeated, packed = "false", tag = "4")]
    pub(crate) neighbour_addresses: Vec<u64>,
    #[prost(uint32, required, tag = "5")]
    pub(crate) cost: u32,
    #[prost(uint32, required, tag = "6")]
    pub(crate) seq: u32,
    #[prost(bool, required, tag = "7")]
    pub(crate) is_up: bool,
    /// Age in ticks.
    #[prost(uint32, required, tag = "8")]
    pub(crate) age: u32,
}

/// A list of link-state objects.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FlowStates {
    #[prost(message, repeated, tag = "1")]
    pub(crate) all: Vec<FlowState>,
}

/// A message that members forward to its destination.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AData {
    #[prost(uint64, required, tag = "1")]
    pub(crate) src: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) dst: u64,
    #[prost(bytes = "vec", required, tag = "3")]
    pub(crate) message: Vec<u8>,
}

/// A text as the whole value of an object. It may be the result of an exclusive or, which need not
/// be UTF-8.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Text {
    #[prost(bytes = "vec", required, tag = "1")]
    pub(crate) text: Vec<u8>,
}

/// A number as the whole value of an object.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Number {
    #[prost(uint64, required, tag = "1")]
    pub(crate) number: u64,
}

/// Constants of a DIF, which a member sends to an IPCP that joined without an address.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Constants {
    #[prost(uint32, required, tag = "1")]
    pub(crate) max_pdu: u32,
    #[prost(uint32, required, tag = "2")]
    pub(crate) address: u32,
    #[prost(uint32, required, tag = "3")]
    pub(crate) port: u32,
    #[prost(uint32, required, tag = "4")]
    pub(crate) cep: u32,
    #[prost(uint32, required, tag = "5")]
    pub(crate) qos: u32,
    #[prost(uint32, required, tag = "6")]
    pub(crate) seq: u32,
    #[prost(uint32, required, tag = "7")]
    pub(crate) length: u32,
    #[prost(uint64, required, tag = "8")]
    pub(crate) rollover: u64,
    #[prost(uint32, required, tag = "9")]
    pub(crate) max_pdu_lifetime_ms: u32,
    #[prost(bool, required, tag = "10")]
    pub(crate) concatenates: bool,
    #[prost(bool, required, tag = "11")]
    pub(crate) fragments: bool,
    #[prost(bool, required, tag = "12")]
    pub(crate) checks_integrity: bool,
    #[prost(uint32, required, tag = "13")]
    pub(crate) retransmit_ms: u32,
    #[prost(uint32, required, tag = "14")]
    pub(crate) acknowledge_ms: u32,
    #[prost(uint32, required, tag = "15")]
    pub(crate) rate: u32,
    #[prost(uint32, required, tag = "16")]
    pub(crate) frame: u32,
    #[prost(uint32, required, tag = "17")]
    pub(crate) ctrl_seq: u32,
}

/// Error: the value of an object is missing or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Encodes a structure as the value of an object.
pub(crate) fn value(structure: &impl Message) -> Value {
    Value::Bytes(structure.encode_to_vec())
}

/// Decodes the structure in a message's value.
///
/// # Errors
/// The value is missing or malformed.
pub(crate) fn read<T: Message + Default>(message: &Cdap) -> Result<T, Unreadable> {
    let bytes = message.value.as_ref().and_then(Value::as_bytes);
    T::decode(bytes.ok_or(Unreadable)?).map_err(|_| Unreadable)
}

impl Naming {
    /// Parses `process|instance|entity|entity instance`; parts at the end may be missing.
    pub(crate) fn of(text: &str) -> Naming {
        let Name { ap, api, ae, aei } = Name::of(text);
        Naming { ap, api, ae, aei }
    }

    /// Writes the text form, without empty parts at the end.
    pub(crate) fn text(&self) -> String {
        let Naming { ap, api, ae, aei } = self.clone();
        Name { ap, api, ae, aei }.to_string()
    }

    /// Writes the form that object names contain, always with four parts.
    pub(crate) fn key(&self) -> String {
        [&self.ap[..], &self.api, &self.ae, &self.aei].join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_short_textual_form_and_a_whole_key() {
        let whole = Naming::of("a.b|1|Management|x");
        assert_eq!(whole.text(), "a.b|1|Management|x");
        assert_eq!(whole.key(), "a.b-1-Management-x");
        assert_eq!(Naming::of("a.b").text(), "a.b");
        assert_eq!(Naming::of("a.b").key(), "a.b---");
    }

    #[test]
    fn what_is_always_written_is_written_when_empty() {
        let entry = DirectoryEntry {
            name: Some(Naming::of("rpinst1")),
            address: 16,
            seq: 0,
        };
        let entries = DirectoryEntries {
            all: alloc::vec![entry],
        };
        let bytes = value(&entries);
        let expected = b"\x0a\x15\x0a\x0f\x0a\x07rpinst1\x12\x00\x1a\x00\x22\x00\x10\x10\x18\x00";
        assert_eq!(bytes.as_bytes(), Some(&expected[..]));
    }
}
