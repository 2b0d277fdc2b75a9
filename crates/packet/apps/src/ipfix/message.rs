//! Builds IPFIX messages. (RFC 7011 §3)
//!
//! ```text
//!   version 10 2 | length 2 | export time 4 | sequence number 4 | observation domain 4
//!   | sets: id 2, length 2, records
//!   set 2: templates: id 2, count of fields 2, of each its element 2 and length 2
//! ```

use carina_time::Duration;
use carina_wire::inet::{PROTOCOL_ICMP, PROTOCOL_ICMP6};

use super::flow_table::{Ended, Flow};
use super::packet::{FlowKey, Version};

/// Length of a message's header, in bytes.
pub const HEADER: usize = 16;
const SET_HEADER: usize = 4;
const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;

/// The number of an information element, and its length in bytes. (RFC 7012, IANA's registry)
type Field = (u16, u16);

const COMMON: [Field; 7] = [
    // flowStartMilliseconds and flowEndMilliseconds, since 1970.
    (152, 8),
    (153, 8),
    // packetDeltaCount, octetDeltaCount, protocolIdentifier, flowEndReason, vlanId.
    (2, 8),
    (1, 8),
    (4, 1),
    (136, 1),
    (58, 2),
];
/// sourceIPv4Address and destinationIPv4Address.
const ADDRESSES4: [Field; 2] = [(8, 4), (12, 4)];
/// sourceIPv6Address and destinationIPv6Address.
const ADDRESSES6: [Field; 2] = [(27, 16), (28, 16)];
/// sourceTransportPort, destinationTransportPort, tcpControlBits.
const PORTS: [Field; 3] = [(7, 2), (11, 2), (6, 2)];
/// icmpTypeCodeIPv4, and icmpTypeCodeIPv6.
const ICMP4: [Field; 1] = [(32, 2)];
const ICMP6: [Field; 1] = [(139, 2)];

/// A template: its number, and groups of fields.
struct Template {
    id: u16,
    parts: [&'static [Field]; 3],
}

/// The templates; their numbers begin at 256. (RFC 7011 §3.4.1)
const TEMPLATES: [Template; 4] = [
    Template {
        id: 256,
        parts: [&COMMON, &ADDRESSES4, &PORTS],
    },
    Template {
        id: 257,
        parts: [&COMMON, &ADDRESSES6, &PORTS],
    },
    Template {
        id: 258,
        parts: [&COMMON, &ADDRESSES4, &ICMP4],
    },
    Template {
        id: 259,
        parts: [&COMMON, &ADDRESSES6, &ICMP6],
    },
];

impl Template {
    /// The template for a flow.
    fn of(key: &FlowKey) -> &'static Template {
        let place = match (key.version, key.protocol) {
            (Version::V4, PROTOCOL_ICMP) => 2,
            (Version::V6, PROTOCOL_ICMP6) => 3,
            (Version::V4, _) => 0,
            (Version::V6, _) => 1,
        };
        &TEMPLATES[place]
    }

    fn fields(&self) -> impl Iterator<Item = Field> {
        self.parts.into_iter().flatten().copied()
    }

    /// Length of a record, in bytes.
    fn bytes(&self) -> usize {
        self.fields().map(|(_, length)| usize::from(length)).sum()
    }
}

/// Collects records of ended flows into messages.
#[derive(Debug)]
pub struct Exporter {
    domain: u32,
    /// Length of the longest message, in bytes.
    longest: usize,
    /// Number of records in earlier messages. (RFC 7011 §3.1)
    sequence: u32,
    /// The message being built; empty before its first record.
    message: Vec<u8>,
    /// Offset of the message's last set, and the number of its template.
    set: Option<(usize, u16)>,
    records: u32,
}

impl Exporter {
    /// Smallest limit of a message's length: room for a record of any template.
    pub const LONGEST_MIN: usize = 256;

    /// An exporter for an observation domain, whose messages have at most `longest` bytes.
    #[must_use]
    pub fn new(domain: u32, longest: usize) -> Exporter {
        Exporter {
            domain,
            longest: longest.max(Exporter::LONGEST_MIN),
            sequence: 0,
            message: Vec::new(),
            set: None,
            records: 0,
        }
    }

    /// Builds a message with all templates; `time` is the present time since 1970.
    #[must_use]
    pub fn templates(&self, time: Duration) -> Vec<u8> {
        let mut message = vec![0; HEADER + SET_HEADER];
        for template in &TEMPLATES {
            message.extend(template.id.to_be_bytes());
            message.extend((template.fields().count() as u16).to_be_bytes());
            for (element, length) in template.fields() {
                message.extend(element.to_be_bytes());
                message.extend(length.to_be_bytes());
            }
        }
        close_set(&mut message, HEADER, TEMPLATE_SET);
        self.close(&mut message, time);
        message
    }

    /// Adds a flow. The times in it count from `began`, a time since 1970. Returns the previous
    /// message if that was full; `time` is the present time since 1970.
    pub fn add(&mut self, ended: &Ended, began: Duration, time: Duration) -> Option<Vec<u8>> {
        let template = Template::of(&ended.key);
        let is_open = self.set.is_some_and(|(_, id)| id == template.id);
        let needed = template.bytes() + if is_open { 0 } else { SET_HEADER };
        let full = if self.message.len() + needed > self.longest {
            self.flush(time)
        } else {
            None
        };
        if self.message.is_empty() {
            self.message.resize(HEADER, 0);
        }
        if self.set.is_none_or(|(_, id)| id != template.id) {
            self.end_set();
            self.set = Some((self.message.len(), template.id));
            self.message.resize(self.message.len() + SET_HEADER, 0);
        }
        put(&mut self.message, template, ended, began);
        self.records += 1;
        full
    }

    /// Ends and returns the message being built, if it has a record.
    pub fn flush(&mut self, time: Duration) -> Option<Vec<u8>> {
        if self.records == 0 {
            return None;
        }
        self.end_set();
        let mut message = std::mem::take(&mut self.message);
        self.close(&mut message, time);
        self.sequence = self.sequence.wrapping_add(self.records);
        self.records = 0;
        Some(message)
    }

    fn end_set(&mut self) {
        if let Some((at, id)) = self.set.take() {
            close_set(&mut self.message, at, id);
        }
    }

    fn close(&self, message: &mut [u8], time: Duration) {
        let length = message.len() as u16;
        // Seconds since 1970 in 32 bits, which end in 2106. (RFC 7011 §3.1)
        let seconds = (time.as_nanos() / 1_000_000_000) as u32;
        message[..2].copy_from_slice(&VERSION.to_be_bytes());
        message[2..4].copy_from_slice(&length.to_be_bytes());
        message[4..8].copy_from_slice(&seconds.to_be_bytes());
        message[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        message[12..HEADER].copy_from_slice(&self.domain.to_be_bytes());
    }
}

fn close_set(message: &mut [u8], at: usize, id: u16) {
    let length = (message.len() - at) as u16;
    message[at..at + 2].copy_from_slice(&id.to_be_bytes());
    message[at + 2..at + SET_HEADER].copy_from_slice(&length.to_be_bytes());
}

fn put(message: &mut Vec<u8>, template: &Template, ended: &Ended, began: Duration) {
    let Ended { key, flow, reason } = ended;
    let Flow {
        first,
        last,
        packets,
        bytes,
        tcp_flags,
    } = flow;
    let millis = |nanos: u64| (began.as_nanos() + nanos) / 1_000_000;
    for (element, length) in template.fields() {
        let value: &[u8] = match element {
            152 => &millis(first.as_nanos()).to_be_bytes(),
            153 => &millis(last.as_nanos()).to_be_bytes(),
            2 => &packets.to_be_bytes(),
            1 => &bytes.to_be_bytes(),
            4 => &[key.protocol],
            136 => &[*reason as u8],
            58 => &key.vlan.to_be_bytes(),
            8 | 27 => &key.source[..length.into()],
            12 | 28 => &key.destination[..length.into()],
            7 => &key.ports[0].to_be_bytes(),
            11 | 32 | 139 => &key.ports[1].to_be_bytes(),
            6 => &tcp_flags.to_be_bytes(),
            _ => unreachable!("templates have no other element"),
        };
        debug_assert_eq!(value.len(), usize::from(length));
        message.extend_from_slice(value);
    }
}
