//! Translation of source addresses by the kernel's nftables, through nfnetlink.
//!
//! The table belongs to the socket that made it (Linux 5.12, `NFT_TABLE_F_OWNER`). The kernel
//! removes the table with the socket, also after `kill -9`, and `nft flush ruleset` leaves it.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::error::NetdevError;
use crate::interface::check_interface_name;
use crate::netlink::{ACKNOWLEDGE, CREATE, HEADER_BYTES, NLMSG_ERROR, append, attribute};

/// Gives packets from some prefixes the address of the interface over which they leave this
/// network namespace, until the value is dropped.
#[derive(Debug)]
pub struct Masquerade {
    /// The socket that owns the table.
    _socket: OwnedFd,
}

impl Masquerade {
    /// Translates packets whose source is in one of the prefixes and whose destination is outside
    /// of that prefix, and which leave over another interface than `inside`. The table has the name
    /// `carina-INSIDE`.
    ///
    /// # Errors
    /// `CAP_NET_ADMIN` is missing, the kernel has no nftables, or another process has a table of
    /// that name.
    pub fn start(inside: &str, prefixes: &[(IpAddr, u8)]) -> Result<Masquerade, NetdevError> {
        check_interface_name(inside)?;
        let made = || {
            let kind = (AddressFamily::NETLINK, SocketType::RAW);
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(kind.0, kind.1, flags, Some(netlink::NETFILTER))?;
            let batch = Batch::masquerading(inside, prefixes);
            exchange(&socket, &batch)?;
            Ok(Masquerade { _socket: socket })
        };
        let what = format!("translating addresses behind {inside} by nftables");
        made().map_err(|source: io::Error| NetdevError::of_device(what, source))
    }
}

/// Requests that the kernel carries out together or not at all.
struct Batch {
    bytes: Vec<u8>,
    /// Sequence number of the last request; the first request has 1.
    requests: u32,
}

impl Batch {
    fn masquerading(inside: &str, prefixes: &[(IpAddr, u8)]) -> Batch {
        let mut batch = Batch {
            bytes: Vec::new(),
            requests: 0,
        };
        let table = format!("carina-{inside}");
        batch.limit(BATCH_BEGIN);
        batch.request(NEW_TABLE, CREATE, |body| {
            text(body, TABLE_NAME, &table);
            number(body, TABLE_FLAGS, TABLE_OWNER);
        });
        batch.request(NEW_CHAIN, CREATE, |body| {
            text(body, CHAIN_TABLE, &table);
            text(body, CHAIN_NAME, CHAIN);
            nested(body, CHAIN_HOOK, |hook| {
                number(hook, HOOK_NUMBER, POST_ROUTING);
                number(hook, HOOK_PRIORITY, PRIORITY_SOURCE_NAT);
            });
            text(body, CHAIN_TYPE, "nat");
        });
        for (prefix, bits) in prefixes {
            batch.request(NEW_RULE, CREATE | APPEND, |body| {
                text(body, RULE_TABLE, &table);
                text(body, RULE_CHAIN, CHAIN);
                nested(body, RULE_EXPRESSIONS, |list| {
                    rule(list, inside, *prefix, *bits);
                });
            });
        }
        batch.limit(BATCH_END);
        batch
    }

    /// Adds the begin or the end of the batch.
    fn limit(&mut self, kind: u16) {
        self.message(kind, 0, 0, NFPROTO_UNSPEC, SUBSYSTEM, &[]);
    }

    fn request(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Vec<u8>)) {
        self.requests += 1;
        let mut bytes = Vec::new();
        body(&mut bytes);
        let kind = SUBSYSTEM << 8 | kind;
        let flags = ACKNOWLEDGE | flags;
        self.message(kind, flags, self.requests, NFPROTO_INET, 0, &bytes);
    }

    fn message(&mut self, kind: u16, flags: u16, number: u32, family: u8, id: u16, body: &[u8]) {
        // Family, version, and the subsystem that a batch is for.
        let mut content = vec![family, 0];
        content.extend(id.to_be_bytes());
        content.extend(body);
        append(&mut self.bytes, kind, flags, number, &content);
    }
}

/// Adds the expressions of a rule: source in the prefix, destination outside of it, another
/// interface than `inside`; then the translation.
fn rule(list: &mut Vec<u8>, inside: &str, prefix: IpAddr, bits: u8) {
    let (protocol, octets, source, destination) = match prefix {
        IpAddr::V4(address) => (NFPROTO_IPV4, address.octets().to_vec(), 12, 16),
        IpAddr::V6(address) => (NFPROTO_IPV6, address.octets().to_vec(), 8, 24),
    };
    let width = octets.len();
    let mask: Vec<u8> = (0..width)
        .map(|n| {
            let left = usize::from(bits).saturating_sub(n * 8).min(8);
            (0xff00_u16 >> left) as u8
        })
        .collect();
    let network: Vec<u8> = octets.iter().zip(&mask).map(|(a, b)| a & b).collect();
    let meta = |list: &mut Vec<u8>, key| {
        expression(list, "meta", |data| {
            number(data, META_TO, REGISTER);
            number(data, META_KEY, key);
        });
    };
    let compare = |list: &mut Vec<u8>, operator, value: &[u8]| {
        expression(list, "cmp", |data| {
            number(data, COMPARE_FROM, REGISTER);
            number(data, COMPARE_OPERATOR, operator);
            nested(data, COMPARE_WITH, |data| {
                attribute(data, DATA_VALUE, value)
            });
        });
    };
    meta(list, META_PROTOCOL);
    compare(list, EQUAL, &[protocol]);
    for (offset, operator) in [(source, EQUAL), (destination, DIFFERENT)] {
        expression(list, "payload", |data| {
            number(data, PAYLOAD_TO, REGISTER);
            number(data, PAYLOAD_BASE, NETWORK_HEADER);
            number(data, PAYLOAD_OFFSET, offset);
            number(data, PAYLOAD_LENGTH, width as u32);
        });
        expression(list, "bitwise", |data| {
            number(data, BITWISE_FROM, REGISTER);
            number(data, BITWISE_TO, REGISTER);
            number(data, BITWISE_LENGTH, width as u32);
            nested(data, BITWISE_MASK, |data| {
                attribute(data, DATA_VALUE, &mask)
            });
            let zero = vec![0; width];
            nested(data, BITWISE_XOR, |data| attribute(data, DATA_VALUE, &zero));
        });
        compare(list, operator, &network);
    }
    let mut name = [0; INTERFACE_NAME_BYTES];
    name[..inside.len()].copy_from_slice(inside.as_bytes());
    meta(list, META_OUT_NAME);
    compare(list, DIFFERENT, &name);
    expression(list, "masq", |_| {});
}

fn expression(list: &mut Vec<u8>, name: &str, data: impl FnOnce(&mut Vec<u8>)) {
    nested(list, LIST_ELEMENT, |element| {
        text(element, EXPRESSION_NAME, name);
        nested(element, EXPRESSION_DATA, data);
    });
}

fn nested(to: &mut Vec<u8>, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    content(&mut bytes);
    attribute(to, NESTED | kind, &bytes);
}

fn text(to: &mut Vec<u8>, kind: u16, text: &str) {
    attribute(to, kind, format!("{text}\0").as_bytes());
}

fn number(to: &mut Vec<u8>, kind: u16, value: u32) {
    attribute(to, kind, &value.to_be_bytes());
}

/// Sends a batch. The kernel has answered all of its requests when the call returns.
fn exchange(socket: &OwnedFd, batch: &Batch) -> io::Result<()> {
    send(socket, &batch.bytes, SendFlags::empty())?;
    let mut answer = vec![0; 1 << 14];
    let mut acknowledged = 0;
    while acknowledged < batch.requests {
        let (length, _) = recv(socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        let mut rest = &answer[..length.min(answer.len())];
        while let Some((code, after)) = first_code(rest) {
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code.saturating_neg()));
            }
            acknowledged += 1;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

/// The result of the first message, 0 or a negative error number, and the messages after it.
/// `None` at the end, or if the message is no result.
fn first_code(messages: &[u8]) -> Option<(i32, &[u8])> {
    let word = |at: usize| -> Option<[u8; 4]> { messages.get(at..at + 4)?.try_into().ok() };
    let length = u32::from_ne_bytes(word(0)?) as usize;
    let kind = u16::from_ne_bytes([*messages.get(4)?, *messages.get(5)?]);
    if kind != NLMSG_ERROR || length < HEADER_BYTES + 4 {
        return None;
    }
    let code = i32::from_ne_bytes(word(HEADER_BYTES)?);
    let after = messages.get(length.next_multiple_of(4)..);
    Some((code, after.unwrap_or_default()))
}

const CHAIN: &str = "nat";
const INTERFACE_NAME_BYTES: usize = 16;
const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;
/// `NFNL_SUBSYS_NFTABLES`; numbers below are of `linux/netfilter/nf_tables.h`.
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = 0;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const NFPROTO_UNSPEC: u8 = 0;
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const TABLE_OWNER: u32 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const POST_ROUTING: u32 = 4;
const PRIORITY_SOURCE_NAT: u32 = 100;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const REGISTER: u32 = 1;
const DATA_VALUE: u16 = 1;
const META_TO: u16 = 1;
const META_KEY: u16 = 2;
const META_OUT_NAME: u32 = 7;
const META_PROTOCOL: u32 = 15;
const COMPARE_FROM: u16 = 1;
const COMPARE_OPERATOR: u16 = 2;
const COMPARE_WITH: u16 = 3;
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;
const PAYLOAD_TO: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const NETWORK_HEADER: u32 = 1;
const BITWISE_FROM: u16 = 1;
const BITWISE_TO: u16 = 2;
const BITWISE_LENGTH: u16 = 3;
const BITWISE_MASK: u16 = 4;
const BITWISE_XOR: u16 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_numbered_and_fill_whole_words() {
        let prefixes = [
            ("10.9.1.0".parse().unwrap(), 24),
            ("fd00::".parse().unwrap(), 8),
        ];
        let batch = Batch::masquerading("tun0", &prefixes);
        assert_eq!(batch.requests, 4);
        let (mut at, mut kinds) = (0, Vec::new());
        while at < batch.bytes.len() {
            let word = |at: usize| u32::from_ne_bytes(batch.bytes[at..at + 4].try_into().unwrap());
            assert_eq!(word(at) % 4, 0);
            kinds.push(u16::from_ne_bytes([
                batch.bytes[at + 4],
                batch.bytes[at + 5],
            ]));
            at += word(at) as usize;
        }
        assert_eq!(kinds, [16, 0xa00, 0xa03, 0xa06, 0xa06, 17]);
        assert_eq!(at, batch.bytes.len());
    }

    #[test]
    fn mask_of_a_rule_has_the_bits_of_the_prefix() {
        for (bits, mask) in [(0, [0, 0, 0, 0]), (13, [255, 248, 0, 0]), (32, [255; 4])] {
            let mut list = Vec::new();
            rule(&mut list, "tun0", "10.9.1.0".parse().unwrap(), bits);
            let with_header = [&[8, 0, 1, 0][..], &mask].concat();
            assert!(list.windows(8).any(|part| part == with_header), "{bits}");
        }
    }

    #[test]
    fn results_of_one_read_are_taken_in_order() {
        let result = |code: i32| {
            let mut bytes = 20_u32.to_ne_bytes().to_vec();
            bytes.extend(NLMSG_ERROR.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(code.to_ne_bytes());
            bytes
        };
        let both = [result(0), result(-1)].concat();
        let (code, rest) = first_code(&both).unwrap();
        assert_eq!((code, first_code(rest).unwrap()), (0, (-1, &[][..])));
        for length in 0..20 {
            assert_eq!(first_code(&both[..length]), None, "{length}");
        }
    }
}
