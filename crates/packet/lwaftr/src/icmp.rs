//! Builds the ICMPv4 and ICMPv6 messages that the AFTR sends.

use carina_frame::{Frame, Pool};
use carina_time::{Duration, Instant};
use carina_wire::inet::{PROTOCOL_ICMP, PROTOCOL_ICMP6, checksum, pseudo_sum6};
use carina_wire::ipv6::Upper;

use crate::config::{ErrorRate, Rules};

/// Type, code and third word of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// The word behind the checksum: an MTU, a pointer, or 0.
    pub word: u32,
}

impl Message {
    /// A message whose third word is 0.
    #[must_use]
    pub const fn of(kind: u8, code: u8) -> Message {
        Message {
            kind,
            code,
            word: 0,
        }
    }

    /// ICMPv4 "fragmentation needed and DF set", with the MTU of the next hop in bytes. (RFC 1191
    /// §4)
    #[must_use]
    pub fn must_cut(mtu: usize) -> Message {
        Message {
            kind: 3,
            code: 4,
            word: u32::from(u16::try_from(mtu).unwrap_or(u16::MAX)),
        }
    }
}

/// ICMPv4 "host unreachable".
pub const UNREACHABLE4: Message = Message::of(3, 1);
/// ICMPv4 "time to live exceeded in transit".
pub const NO_HOP4: Message = Message::of(11, 0);
/// ICMPv4 "fragment reassembly time exceeded".
pub const EXPIRED4: Message = Message::of(11, 1);
/// ICMPv6 "source address failed ingress/egress policy". (RFC 4443 §3.1)
pub const WRONG_SOURCE6: Message = Message::of(1, 5);
/// ICMPv6 "fragment reassembly time exceeded".
pub const EXPIRED6: Message = Message::of(3, 1);

/// Length of the longest ICMPv4 error, in bytes. (RFC 1812 §4.3.2.3)
const LONGEST4: usize = 576;
/// Length of the longest ICMPv6 error, in bytes. (RFC 4443 §2.4c)
const LONGEST6: usize = 1280;
/// Hop limit of answers to echo requests. (RFC 1700)
const REPLY_HOP_LIMIT: u8 = 64;
/// Precedence "internetwork control", as a TOS octet. (RFC 1812 §4.3.2.5)
const PRECEDENCE: u8 = 6 << 5;

/// Makes an IPv4 packet with an ICMP error about the packet `about`. The error quotes as many bytes
/// of `about` as fit: it has at most 576 bytes, and at most `mtu` bytes if `rules` set DF on
/// errors. Returns `None` if the pool has no frame.
#[must_use]
pub fn error4(
    pool: &Pool,
    rules: &Rules,
    [source, destination]: [[u8; 4]; 2],
    message: Message,
    about: &[u8],
    mtu: usize,
) -> Option<Frame> {
    let longest = if rules.errors_have_precedence {
        LONGEST4.min(mtu)
    } else {
        LONGEST4
    };
    let quoted = &about[..about.len().min(longest.saturating_sub(28))];
    let mut head = [0; 28];
    let total = (28 + quoted.len()) as u16;
    head[0] = 0x45;
    if rules.errors_have_precedence {
        // A packet with DF set needs no identification. (RFC 6864 §4.1)
        (head[1], head[6]) = (PRECEDENCE, 0x40);
    }
    head[2..4].copy_from_slice(&total.to_be_bytes());
    (head[8], head[9]) = (rules.hop_limit, PROTOCOL_ICMP);
    head[12..16].copy_from_slice(&source);
    head[16..20].copy_from_slice(&destination);
    let sum = checksum(&head[..20], 0);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = begun(pool, &head, 20, message, quoted)?;
    let sum = checksum(&frame.bytes()[20..], 0);
    frame.bytes_mut()[22..24].copy_from_slice(&sum.to_be_bytes());
    Some(frame)
}

/// Makes an IPv6 packet with an ICMPv6 error about the packet `about`. The error quotes as many
/// bytes of `about` as fit into 1280 bytes. Returns `None` if the pool has no frame.
#[must_use]
pub fn error6(
    pool: &Pool,
    rules: &Rules,
    [source, destination]: [[u8; 16]; 2],
    message: Message,
    about: &[u8],
) -> Option<Frame> {
    let quoted = &about[..about.len().min(LONGEST6 - 48)];
    let mut head = [0; 48];
    let length = (8 + quoted.len()) as u16;
    head[0] = 0x60;
    head[4..6].copy_from_slice(&length.to_be_bytes());
    (head[6], head[7]) = (PROTOCOL_ICMP6, rules.hop_limit);
    head[8..24].copy_from_slice(&source);
    head[24..40].copy_from_slice(&destination);
    let mut frame = begun(pool, &head, 40, message, quoted)?;
    let sum = sum6(frame.bytes());
    frame.bytes_mut()[42..44].copy_from_slice(&sum.to_be_bytes());
    Some(frame)
}

fn begun(pool: &Pool, head: &[u8], at: usize, message: Message, quoted: &[u8]) -> Option<Frame> {
    let mut frame = pool.take()?;
    if !(frame.append(head) && frame.append(quoted)) {
        return None;
    }
    let bytes = &mut frame.bytes_mut()[at..];
    (bytes[0], bytes[1]) = (message.kind, message.code);
    bytes[4..8].copy_from_slice(&message.word.to_be_bytes());
    Some(frame)
}

/// Computes the ICMPv6 checksum of a packet. With the checksum field set to 0, the result is the
/// value to write there; with the field filled in, the result is 0 if the checksum is right. The
/// packet must begin with its 40-byte header and have no bytes behind its payload.
#[must_use]
pub fn sum6(packet: &[u8]) -> u16 {
    let (header, message) = packet.split_at(40);
    let mut addresses = [0; 32];
    addresses.copy_from_slice(&header[8..40]);
    checksum(
        message,
        pseudo_sum6(&addresses, message.len(), PROTOCOL_ICMP6),
    )
}

/// Whether an ICMPv6 error about a packet may be sent. (RFC 4443 §2.4e)
#[must_use]
pub fn may_be_answered6(packet: &[u8]) -> bool {
    let Some(header) = packet.first_chunk::<40>() else {
        return false;
    };
    let (source, destination) = (&header[8..24], &header[24..40]);
    let is_host = source[0] != 0xff && source[..15].iter().any(|byte| *byte != 0);
    let is_error = Upper::seen(packet).is_none_or(|upper| {
        let kind = packet[upper.start..upper.end].first();
        let is_icmp = upper.protocol == PROTOCOL_ICMP6;
        is_icmp && kind.is_none_or(|kind| *kind < 128 || *kind == REDIRECT)
    });
    is_host && destination[0] != 0xff && !is_error
}

const REDIRECT: u8 = 137;

/// Turns an ICMPv6 echo request for `address` into its reply, in place. Returns `false` and changes
/// nothing for any other frame, and for a request with a wrong checksum.
#[must_use]
pub fn answer6(frame: &mut [u8], address: [u8; 16]) -> bool {
    const ECHO_REQUEST: u8 = 128;
    const ECHO_REPLY: u8 = 129;
    let Some((ether, packet)) = frame.split_first_chunk_mut::<14>() else {
        return false;
    };
    let is_ours = packet.len() >= 48
        && packet[6] == PROTOCOL_ICMP6
        && packet[24..40] == address
        && packet[40..42] == [ECHO_REQUEST, 0];
    if !is_ours || sum6(packet) != 0 || !may_be_answered6(packet) {
        return false;
    }
    packet.copy_within(8..24, 24);
    packet[8..24].copy_from_slice(&address);
    (packet[7], packet[40]) = (REPLY_HOP_LIMIT, ECHO_REPLY);
    packet[42..44].fill(0);
    let sum = sum6(packet);
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    let (to, from) = ether[..12].split_at_mut(6);
    to.swap_with_slice(from);
    true
}

/// Limits the ICMP errors that are sent in each period.
#[derive(Clone, Debug)]
pub struct Limit {
    rate: ErrorRate,
    began: Option<Instant>,
    sent: u32,
}

impl Limit {
    /// A limit of `rate` from which nothing has been used yet.
    #[must_use]
    pub fn new(rate: ErrorRate) -> Limit {
        Limit {
            rate,
            began: None,
            sent: 0,
        }
    }

    /// Whether one more error may be sent at time `now`; if so, counts it as sent.
    #[must_use]
    pub fn allows(&mut self, now: Instant) -> bool {
        let period = Duration::from_secs(u64::from(self.rate.period_s));
        if self.began.is_none_or(|began| now.since(began) >= period) {
            (self.began, self.sent) = (Some(now), 0);
        }
        let is_allowed = self.sent < self.rate.packets;
        self.sent += u32::from(is_allowed);
        is_allowed
    }
}
