//! A small server of the Domain Name System: A, AAAA and PTR of names of DIFs (RFC 1035, RFC 3596).
//!
//! It does no I/O: [`Query::read`] reads a message, [`Query::answer`] writes the response.
//!
//! | question | response |
//! |---|---|
//! | a known name, A or AAAA | its address, with a small TTL |
//! | a known name, another type; a name that has names below it | no data |
//! | an unknown name of a domain that is served | `NXDOMAIN` |
//! | another domain | `REFUSED` |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A message of a DNS client, with the one question that it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    id: u16,
    asks_recursion: bool,
    edns: Option<Edns>,
    /// The question as it was sent: its name, type and class.
    question: Vec<u8>,
    /// The name in lower case, without a dot at its end.
    name: String,
    kind: u16,
}

/// What a client says of itself by EDNS (RFC 6891).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edns {
    /// Bytes of the longest response that it takes over UDP.
    bytes_max: u16,
    version: u8,
}

/// Why a message has no question to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryError {
    /// The message is a response, or too short for a header: the server drops it.
    NoQuery,
    /// The message is malformed or not supported: the server answers with these bytes.
    Wrong(Vec<u8>),
}

/// The result of looking up the name of a question, from which the server makes its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Records {
    /// The addresses of the name. The list is empty if only names below the name exist.
    Addresses(Vec<IpAddr>),
    /// The name to which the address of the question belongs.
    Name(String),
    /// There is no such name in the domain.
    NoSuchName,
    /// The name is in none of the domains that are served.
    OtherDomain,
    /// The look-up failed for now, for example because the node does not answer.
    Failed,
}

impl Query {
    /// Parses a DNS message that a client sent.
    ///
    /// # Errors
    /// The message is not a query, or a query that the server answers with an error.
    pub fn read(message: &[u8]) -> Result<Query, QueryError> {
        let header = message.get(..HEADER_BYTES).ok_or(QueryError::NoQuery)?;
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (id, flags) = (number(0), number(2));
        if flags & RESPONSE != 0 {
            return Err(QueryError::NoQuery);
        }
        let asks_recursion = flags & RECURSION_DESIRED != 0;
        let wrong = |code: u16| {
            let flags = RESPONSE | flags & (OPCODE | RECURSION_DESIRED) | code;
            let mut answer = [id.to_be_bytes(), flags.to_be_bytes()].concat();
            answer.resize(HEADER_BYTES, 0);
            QueryError::Wrong(answer)
        };
        if flags & OPCODE != 0 {
            return Err(wrong(NOT_IMPLEMENTED));
        }
        let counts = [4, 6, 8].map(number);
        if counts != [1, 0, 0] || number(10) > 1 {
            return Err(wrong(FORMAT_ERROR));
        }
        let (name, rest) =
            read_name(&message[HEADER_BYTES..]).ok_or_else(|| wrong(FORMAT_ERROR))?;
        let [kind_high, kind_low, class_high, class_low, rest @ ..] = rest else {
            return Err(wrong(FORMAT_ERROR));
        };
        let class = u16::from_be_bytes([*class_high, *class_low]);
        if ![CLASS_IN, CLASS_ANY].contains(&class) {
            return Err(wrong(REFUSED));
        }
        let edns = match number(10) {
            0 if rest.is_empty() => None,
            1 => Some(Edns::read(rest).ok_or_else(|| wrong(FORMAT_ERROR))?),
            _ => return Err(wrong(FORMAT_ERROR)),
        };
        let question = &message[HEADER_BYTES..message.len() - rest.len()];
        if edns.is_some_and(|edns| edns.version != EDNS_VERSION) {
            let flags = RESPONSE | flags & RECURSION_DESIRED;
            let mut answer = response_header(id, flags, [1, 0, 0, 1]);
            answer.extend_from_slice(question);
            answer.extend_from_slice(&edns_record(BAD_VERSION));
            return Err(QueryError::Wrong(answer));
        }
        Ok(Query {
            id,
            asks_recursion,
            edns,
            question: question.to_vec(),
            name,
            kind: u16::from_be_bytes([*kind_high, *kind_low]),
        })
    }

    /// The name that the client asks about, in lower case, without a dot at its end.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address whose name the client asks for. `None` if the question's name is not below
    /// `in-addr.arpa` or `ip6.arpa`, or has not all parts of an address.
    pub fn reverse(&self) -> Option<IpAddr> {
        if let Some(digits) = self.name.strip_suffix(".in-addr.arpa") {
            let mut parts: Vec<&str> = digits.split('.').collect();
            parts.reverse();
            return parts.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4);
        }
        let digits = self.name.strip_suffix(".ip6.arpa")?;
        let mut value = 0u128;
        let mut count = 0;
        for digit in digits.split('.').rev() {
            let digit = (digit.len() == 1).then(|| u8::from_str_radix(digit, 16).ok())??;
            value = value << 4 | u128::from(digit);
            count += 1;
        }
        (count == 32).then(|| Ipv6Addr::from(value).into())
    }

    /// The response over UDP. One that is longer than the client takes, which is 512 bytes without
    /// EDNS, has no records: the client asks again over TCP.
    pub fn answer_datagram(&self, records: &Records) -> Vec<u8> {
        let bytes_max = self
            .edns
            .map_or(0, |edns| edns.bytes_max)
            .max(DATAGRAM_BYTES);
        let response = self.answer(records);
        if response.len() <= bytes_max.into() {
            return response;
        }
        self.response(records, Vec::new(), TRUNCATED)
    }

    /// Makes the response with these records. It is at most [`RESPONSE_BYTES_MAX`] bytes long.
    pub fn answer(&self, records: &Records) -> Vec<u8> {
        self.response(records, self.answers(records), 0)
    }

    fn response(&self, records: &Records, answers: Vec<(u16, Vec<u8>)>, bits: u16) -> Vec<u8> {
        let code = match records {
            Records::Addresses(_) | Records::Name(_) => NO_ERROR,
            Records::NoSuchName => NO_SUCH_NAME,
            Records::OtherDomain => REFUSED,
            Records::Failed => SERVER_FAILURE,
        };
        let mut flags = RESPONSE | code | bits;
        if self.asks_recursion {
            // Recursion is available: a client that relies on it must not look elsewhere.
            flags |= RECURSION_DESIRED | RECURSION_AVAILABLE;
        }
        if !matches!(records, Records::OtherDomain | Records::Failed) {
            flags |= AUTHORITATIVE;
        }
        let counts = [1, answers.len() as u16, 0, self.edns.is_some().into()];
        let mut response = response_header(self.id, flags, counts);
        response.extend_from_slice(&self.question);
        for (kind, data) in answers {
            // The owner is the name of the question.
            response.extend_from_slice(&(POINTER | HEADER_BYTES as u16).to_be_bytes());
            response.extend_from_slice(&kind.to_be_bytes());
            response.extend_from_slice(&CLASS_IN.to_be_bytes());
            response.extend_from_slice(&TTL_S.to_be_bytes());
            response.extend_from_slice(&(data.len() as u16).to_be_bytes());
            response.extend_from_slice(&data);
        }
        if self.edns.is_some() {
            response.extend_from_slice(&edns_record(0));
        }
        response
    }

    fn answers(&self, records: &Records) -> Vec<(u16, Vec<u8>)> {
        let is_wanted = |kind: u16| self.kind == kind || self.kind == ANY;
        match records {
            Records::Addresses(addresses) => {
                let data = addresses.iter().map(|address| match address {
                    IpAddr::V4(address) => (A, address.octets().to_vec()),
                    IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
                });
                data.filter(|(kind, _)| is_wanted(*kind))
                    .take(ANSWERS_MAX)
                    .collect()
            }
            Records::Name(name) if is_wanted(PTR) => written_name(name)
                .map(|name| (PTR, name))
                .into_iter()
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// Reads a name that is not compressed. In a question, nothing stands in front to which a pointer
/// could lead.
fn read_name(mut bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut name = String::new();
    loop {
        let (&length, rest) = bytes.split_first()?;
        if length == 0 {
            return Some((name, rest));
        }
        if length > LABEL_BYTES_MAX {
            return None;
        }
        let label = rest.get(..length.into())?;
        if !name.is_empty() {
            name.push('.');
        }
        // A byte that is not allowed in names of hosts becomes one that is in no name.
        name.extend(label.iter().map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || b"-_".contains(byte) => {
                char::from(byte.to_ascii_lowercase())
            }
            _ => '?',
        }));
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        bytes = &rest[length.into()..];
    }
}

/// Encodes a name as in a message; `None` if it is too long.
fn written_name(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok();
        let length = length.filter(|length| (1..=LABEL_BYTES_MAX).contains(length))?;
        bytes.push(length);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    (bytes.len() <= NAME_BYTES_MAX + 2).then_some(bytes)
}

/// The header of a response with these numbers of questions and records.
fn response_header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let numbers = [id, flags].into_iter().chain(counts);
    numbers.flat_map(u16::to_be_bytes).collect()
}

impl Edns {
    /// Reads the additional record of EDNS (RFC 6891 §6.1.2); `None` if it is another record, or
    /// something follows it.
    fn read(record: &[u8]) -> Option<Edns> {
        let (head, options) = record.split_at_checked(EDNS_RECORD_BYTES)?;
        let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let is_edns = head[0] == 0 && number(1) == EDNS;
        (is_edns && options.len() == usize::from(number(9))).then(|| Edns {
            bytes_max: number(3),
            version: head[6],
        })
    }
}

/// The record of EDNS of a response, with the upper bits of its code.
fn edns_record(upper_code: u8) -> [u8; EDNS_RECORD_BYTES] {
    let [kind, bytes] = [EDNS, EDNS_BYTES].map(u16::to_be_bytes);
    let mut record = [0; EDNS_RECORD_BYTES];
    record[1..3].copy_from_slice(&kind);
    record[3..5].copy_from_slice(&bytes);
    record[5] = upper_code;
    record
}

/// Longest response in bytes: room for a header, a question with the longest name, the records and
/// the EDNS record.
pub const RESPONSE_BYTES_MAX: usize = 1232;

/// Time for which a resolver may keep an answer, in seconds. It is short, because a name may be
/// unregistered.
const TTL_S: u32 = 5;

/// Largest number of records in an answer: a file of static names may give a name many addresses.
const ANSWERS_MAX: usize = 16;

const HEADER_BYTES: usize = 12;

/// Longest label of a name, in bytes (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: u8 = 63;

/// Longest name as text, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// Bits of the header (RFC 1035 §4.1.1).
const RESPONSE: u16 = 1 << 15;
const OPCODE: u16 = 0xf << 11;
const AUTHORITATIVE: u16 = 1 << 10;
const TRUNCATED: u16 = 1 << 9;
const RECURSION_DESIRED: u16 = 1 << 8;
const RECURSION_AVAILABLE: u16 = 1 << 7;

/// Response codes.
const NO_ERROR: u16 = 0;
const FORMAT_ERROR: u16 = 1;
const SERVER_FAILURE: u16 = 2;
const NO_SUCH_NAME: u16 = 3;
const NOT_IMPLEMENTED: u16 = 4;
const REFUSED: u16 = 5;

/// `BADVERS`, 16, without its lower four bits, which are in the header.
const BAD_VERSION: u8 = 1;

/// The version of EDNS that is known.
const EDNS_VERSION: u8 = 0;

/// Bytes of the record of EDNS without options.
const EDNS_RECORD_BYTES: usize = 11;

/// Longest response over UDP to a client that says nothing else (RFC 1035 §4.2.1).
const DATAGRAM_BYTES: u16 = 512;

/// Types and classes.
const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const EDNS: u16 = 41;
const ANY: u16 = 255;
const CLASS_IN: u16 = 1;
const CLASS_ANY: u16 = 255;

/// A name that is written elsewhere in the message (RFC 1035 §4.1.4).
const POINTER: u16 = 0xc000;

/// Longest message over UDP that this server accepts, in bytes, as its EDNS record tells clients.
const EDNS_BYTES: u16 = RESPONSE_BYTES_MAX as u16;

#[cfg(test)]
mod tests;
