//! Messages of the routing policy as encoded values.

use alloc::string::String;
use alloc::vec::Vec;

use carina_routing as routing;
use prost::Message;

use super::values::{decode, encode};

#[derive(Clone, PartialEq, Eq, Message)]
struct LinkValue {
    #[prost(uint64, tag = "1")]
    from: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint64, tag = "3")]
    to: u64,
    #[prost(uint32, tag = "4")]
    cost: u32,
    #[prost(uint64, tag = "5")]
    seq: u64,
    #[prost(bool, tag = "6")]
    is_up: bool,
    #[prost(uint32, tag = "7")]
    age_ms: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct OriginValue {
    #[prost(uint64, tag = "1")]
    origin: u64,
    #[prost(uint32, tag = "2")]
    objects: u32,
    #[prost(fixed64, tag = "3")]
    hash: u64,
}

/// An encoded message of the routing policy. `what` is the kind of message: 1 objects, 2 digest, 3
/// summary, 4 want.
#[derive(Clone, PartialEq, Eq, Message)]
struct RoutingValue {
    #[prost(uint32, tag = "1")]
    what: u32,
    #[prost(message, repeated, tag = "2")]
    links: Vec<LinkValue>,
    #[prost(message, repeated, tag = "3")]
    digests: Vec<OriginValue>,
    #[prost(uint64, tag = "4")]
    first: u64,
    #[prost(uint64, tag = "5")]
    last: u64,
    #[prost(uint64, repeated, tag = "6")]
    want: Vec<u64>,
}

/// Encodes a message of the routing policy.
pub(crate) fn encode_routing(message: &routing::Message) -> Vec<u8> {
    let mut value = RoutingValue::default();
    let digest = |origin, digest: routing::Digest| OriginValue {
        origin,
        objects: digest.objects,
        hash: digest.hash,
    };
    match message {
        routing::Message::Objects(links) => {
            value.what = 1;
            value.links = links
                .iter()
                .map(|link| LinkValue {
                    from: link.from,
                    name: link.name.clone(),
                    to: link.to,
                    cost: link.cost,
                    seq: link.seq,
                    is_up: link.is_up,
                    age_ms: link.age_ms,
                })
                .collect();
        }
        routing::Message::Digest(whole) => {
            value.what = 2;
            value.digests.push(digest(0, *whole));
        }
        routing::Message::Summary(summary) => {
            value.what = 3;
            (value.first, value.last) = (summary.first, summary.last);
            value.digests = summary
                .origins
                .iter()
                .map(|row| digest(row.origin, row.digest))
                .collect();
        }
        routing::Message::Want(origins) => {
            value.what = 4;
            value.want.clone_from(origins);
        }
    }
    encode(&value)
}

/// Decodes a message of the routing policy; `None` when it is malformed.
pub(crate) fn decode_routing(bytes: &[u8]) -> Option<routing::Message> {
    let value: RoutingValue = decode(bytes)?;
    let digest = |value: &OriginValue| routing::Digest {
        objects: value.objects,
        hash: value.hash,
    };
    Some(match value.what {
        1 => routing::Message::Objects(
            value
                .links
                .into_iter()
                .map(|link| routing::FlowState {
                    from: link.from,
                    name: link.name,
                    to: link.to,
                    cost: link.cost,
                    seq: link.seq,
                    is_up: link.is_up,
                    age_ms: link.age_ms,
                })
                .collect(),
        ),
        2 => routing::Message::Digest(digest(value.digests.first()?)),
        3 => routing::Message::Summary(routing::Summary {
            first: value.first,
            last: value.last,
            origins: value
                .digests
                .iter()
                .map(|row| routing::OriginDigest {
                    origin: row.origin,
                    digest: digest(row),
                })
                .collect(),
        }),
        4 => routing::Message::Want(value.want),
        _ => return None,
    })
}
