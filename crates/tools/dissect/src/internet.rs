//! Dissects frames of other protocols than RINA, for a summary: ARP of IPv4 (RFC 826), IPv4 (RFC
//! 791), IPv6 (RFC 8200), ICMP (RFC 792, RFC 4443), UDP (RFC 768), TCP (RFC 9293).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carina_wire::ipv6::{IPV6_BYTES, Upper};

use super::layer::{Layer, cut_short};

/// Adds the layers of a packet. Returns false if its protocol is not known here.
pub(super) fn dissect(
    layers: &mut Vec<Layer>,
    ethertype: u16,
    packet: &[u8],
    original: usize,
) -> bool {
    let layer = match ethertype {
        ETHERTYPE_ARP => arp(packet),
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => {
            match ip(packet, original) {
                Ok(found) => found.add(layers),
                Err(what) if packet.len() < original => {
                    let summary = format!("{what}: {}", cut_short(packet.len(), original));
                    layers.push(Layer::new("ip", summary));
                }
                Err(what) => layers.push(Layer::new("ip", format!("malformed: {what}"))),
            }
            return true;
        }
        _ => return false,
    };
    match layer {
        Some(layer) => layers.push(layer),
        None => return false,
    }
    true
}

/// An IP packet.
struct Packet<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    ttl: u8,
    /// Length of the packet when it was sent, in bytes.
    length: usize,
    /// The captured bytes behind the IP header.
    payload: &'a [u8],
    /// Length of the payload when it was sent, in bytes.
    payload_bytes: usize,
    /// For a fragment: its offset in the whole payload, and whether more fragments follow.
    fragment: Option<(usize, bool)>,
}

impl Packet<'_> {
    fn add(&self, layers: &mut Vec<Layer>) {
        let (name, limit) = match self.from {
            IpAddr::V4(_) => ("ipv4", "ttl"),
            IpAddr::V6(_) => ("ipv6", "hop_limit"),
        };
        let mut layer = Layer::new(name, format!("{} > {}", self.from, self.to));
        layer.field("src", self.from.to_string());
        layer.field("dst", self.to.to_string());
        layer.field("protocol", self.protocol);
        layer.field(limit, self.ttl);
        layer.field("bytes", self.length);
        if let Some((offset, has_more)) = self.fragment {
            let more = if has_more { "+" } else { "" };
            layer.summary += &format!(" fragment at {offset}{more}");
            layer.field("fragment_offset", offset);
            layer.field("more_fragments", has_more);
        }
        layers.push(layer);
        if self.fragment.is_some_and(|(offset, _)| offset > 0) {
            // A fragment in the middle of a packet begins without a header.
            return;
        }
        layers.push(self.inner());
    }

    fn inner(&self) -> Layer {
        let known = match self.protocol {
            ICMP => icmp(self.payload),
            ICMPV6 => icmpv6(self.payload),
            UDP => udp(self.payload, self.payload_bytes),
            TCP => tcp(self.payload, self.payload_bytes),
            other => {
                let summary = format!("protocol {other}, {} bytes", self.payload_bytes);
                return Layer::new("ip-payload", summary);
            }
        };
        known.unwrap_or_else(|| {
            let (here, all) = (self.payload.len(), self.payload_bytes);
            let summary = if here < all {
                cut_short(here, all)
            } else {
                format!("malformed: protocol {} of {all} bytes", self.protocol)
            };
            Layer::new("ip-payload", summary)
        })
    }
}

fn ip(packet: &[u8], original: usize) -> Result<Packet<'_>, &'static str> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4(packet, original),
        Some(6) => ipv6(packet, original),
        Some(_) => Err("neither IPv4 nor IPv6"),
        None => Err("an empty packet"),
    }
}

fn ipv4(packet: &[u8], original: usize) -> Result<Packet<'_>, &'static str> {
    let header: &[u8; 20] = packet.first_chunk().ok_or("a short header")?;
    let words = usize::from(header[0] & 0x0f);
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if words < 5 || length < words * 4 || length > original {
        return Err("lengths that do not fit");
    }
    let address = |at: usize| {
        let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
        IpAddr::V4(Ipv4Addr::from(bytes))
    };
    let cut = u16::from_be_bytes([header[6], header[7]]);
    let (offset, has_more) = (usize::from(cut & 0x1fff) * 8, cut & 0x2000 != 0);
    let payload = packet.get(words * 4..).ok_or("a short header")?;
    let payload_bytes = length - words * 4;
    Ok(Packet {
        from: address(12),
        to: address(16),
        protocol: header[9],
        ttl: header[8],
        length,
        // Bytes behind the packet are the padding of a short frame.
        payload: &payload[..payload_bytes.min(payload.len())],
        payload_bytes,
        fragment: (offset > 0 || has_more).then_some((offset, has_more)),
    })
}

fn ipv6(packet: &[u8], original: usize) -> Result<Packet<'_>, &'static str> {
    let header: &[u8; IPV6_BYTES] = packet.first_chunk().ok_or("a short header")?;
    let payload_bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if payload_bytes + header.len() > original {
        return Err("lengths that do not fit");
    }
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    let upper = Upper::seen(packet).ok_or("a short header")?;
    let length = payload_bytes + header.len();
    let part = upper.part.filter(|part| !part.is_whole());
    Ok(Packet {
        from: address(8),
        to: address(24),
        protocol: upper.protocol,
        ttl: header[7],
        length,
        payload: packet.get(upper.start..upper.end).unwrap_or_default(),
        payload_bytes: length.saturating_sub(upper.start),
        fragment: part.map(|part| (part.offset, part.has_more)),
    })
}

fn arp(message: &[u8]) -> Option<Layer> {
    let message: &[u8; 28] = message.first_chunk()?;
    // Hardware type Ethernet, protocol IPv4.
    if message[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let address = |at: usize| {
        let bytes = [
            message[at],
            message[at + 1],
            message[at + 2],
            message[at + 3],
        ];
        Ipv4Addr::from(bytes)
    };
    let (sender, target) = (address(14), address(24));
    let mac: Vec<String> = message[8..14]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mac = mac.join(":");
    let (operation, summary) = match u16::from_be_bytes([message[6], message[7]]) {
        1 => ("request".to_owned(), format!("{sender} asks for {target}")),
        2 => ("reply".to_owned(), format!("{sender} is at {mac}")),
        other => (other.to_string(), format!("operation {other} of {sender}")),
    };
    let mut layer = Layer::new("arp", summary);
    layer.field("operation", operation);
    layer.field("sender", sender.to_string());
    layer.field("sender_mac", mac);
    layer.field("target", target.to_string());
    Some(layer)
}

fn icmp(message: &[u8]) -> Option<Layer> {
    let (kind, code) = (*message.first()?, *message.get(1)?);
    let words = match (kind, code) {
        (0, _) => "echo reply".to_owned(),
        (3, 0) => "network unreachable".to_owned(),
        (3, 1) => "host unreachable".to_owned(),
        (3, 3) => "port unreachable".to_owned(),
        (3, 4) => "fragmentation needed".to_owned(),
        (3, code) => format!("unreachable, code {code}"),
        (8, _) => "echo request".to_owned(),
        (11, _) => "time exceeded".to_owned(),
        (kind, code) => format!("type {kind}, code {code}"),
    };
    Some(control("icmp", words, matches!(kind, 0 | 8), message))
}

fn icmpv6(message: &[u8]) -> Option<Layer> {
    let (kind, code) = (*message.first()?, *message.get(1)?);
    let words = match kind {
        1 => format!("unreachable, code {code}"),
        2 => "packet too big".to_owned(),
        3 => "time exceeded".to_owned(),
        128 => "echo request".to_owned(),
        129 => "echo reply".to_owned(),
        133 => "router solicitation".to_owned(),
        134 => "router advertisement".to_owned(),
        135 => "neighbour solicitation".to_owned(),
        136 => "neighbour advertisement".to_owned(),
        143 => "multicast listener report".to_owned(),
        kind => format!("type {kind}, code {code}"),
    };
    Some(control("icmpv6", words, matches!(kind, 128 | 129), message))
}

fn control(name: &'static str, words: String, is_echo: bool, message: &[u8]) -> Layer {
    let mut layer = Layer::new(name, words);
    layer.field("type", message[0]);
    layer.field("code", message[1]);
    if is_echo && let Some(&[id0, id1, seq0, seq1]) = message.get(4..).and_then(<[u8]>::first_chunk)
    {
        let (id, seq) = (
            u16::from_be_bytes([id0, id1]),
            u16::from_be_bytes([seq0, seq1]),
        );
        layer.summary += &format!(" id {id} seq {seq}");
        layer.field("id", id);
        layer.field("seq", seq);
    }
    layer
}

fn udp(datagram: &[u8], original: usize) -> Option<Layer> {
    let &[s0, s1, d0, d1, l0, l1, _, _] = datagram.first_chunk()?;
    let (from, to) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let bytes = length.checked_sub(8).filter(|_| length <= original)?;
    let mut layer = Layer::new("udp", format!("udp {from} > {to}, {bytes} bytes"));
    layer.field("src_port", from);
    layer.field("dst_port", to);
    layer.field("bytes", bytes);
    Some(layer)
}

fn tcp(segment: &[u8], original: usize) -> Option<Layer> {
    let header: &[u8; 20] = segment.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let number = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
    let bytes = original.checked_sub(usize::from(header[12] >> 4) * 4)?;
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
    let flags = names.iter().enumerate();
    let flags: Vec<&str> = flags
        .filter(|(bit, _)| header[13] >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    let flags = flags.join(" ");
    let (from, to) = (word(0), word(2));
    let summary = format!(
        "tcp {from} > {to} [{flags}] seq {}, {bytes} bytes",
        number(4)
    );
    let mut layer = Layer::new("tcp", summary);
    layer.field("src_port", from);
    layer.field("dst_port", to);
    layer.field("flags", flags);
    layer.field("seq", number(4));
    layer.field("ack", number(8));
    layer.field("window", word(14));
    layer.field("bytes", bytes);
    Some(layer)
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

#[cfg(test)]
mod tests {
    use super::*;

    fn summaries(ethertype: u16, packet: &[u8], original: usize) -> Vec<String> {
        let mut layers = Vec::new();
        assert!(dissect(&mut layers, ethertype, packet, original));
        layers.into_iter().map(|layer| layer.summary).collect()
    }

    fn ipv4_packet(protocol: u8, cut: u16, payload: &[u8]) -> Vec<u8> {
        let length = (20 + payload.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 1]);
        packet.extend(cut.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(payload);
        packet
    }

    fn of_ipv4(protocol: u8, cut: u16, payload: &[u8]) -> Vec<String> {
        let packet = ipv4_packet(protocol, cut, payload);
        summaries(ETHERTYPE_IPV4, &packet, packet.len())
    }

    #[test]
    fn packets_of_ip_have_addresses_and_what_they_carry() {
        let echo = [8, 0, 0, 0, 0, 7, 0, 9];
        assert_eq!(
            of_ipv4(ICMP, 0, &echo),
            ["10.0.0.1 > 10.0.0.2", "echo request id 7 seq 9"]
        );
        assert_eq!(of_ipv4(ICMP, 0, &[3, 4, 0, 0])[1], "fragmentation needed");
        let datagram = [0, 53, 4, 0, 0, 9, 0, 0, 1];
        assert_eq!(of_ipv4(UDP, 0, &datagram)[1], "udp 53 > 1024, 1 bytes");
        let mut segment = [0; 23];
        segment[1] = 80;
        segment[3] = 81;
        segment[7] = 5;
        segment[12] = 5 << 4;
        segment[13] = 0x12;
        assert_eq!(
            of_ipv4(TCP, 0, &segment)[1],
            "tcp 80 > 81 [SYN ACK] seq 5, 3 bytes"
        );
        assert_eq!(of_ipv4(4, 0, &[1, 2])[1], "protocol 4, 2 bytes");
        // A fragment in the middle of a packet begins without a header.
        assert_eq!(
            of_ipv4(UDP, 0x2002, &datagram),
            ["10.0.0.1 > 10.0.0.2 fragment at 16+"]
        );
    }

    #[test]
    fn packets_of_ipv6_have_addresses_and_what_they_carry() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 4, ICMPV6, 255];
        for last in [1, 2] {
            packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        packet.extend([135, 0, 0, 0]);
        assert_eq!(
            summaries(ETHERTYPE_IPV6, &packet, packet.len()),
            ["fe80::1 > fe80::2", "neighbour solicitation"]
        );
        let mut behind = |kind: u8, header: [u8; 8]| {
            packet[5] += 8;
            packet[6] = kind;
            packet.splice(40..40, header);
            summaries(ETHERTYPE_IPV6, &packet, packet.len())
        };
        assert_eq!(
            behind(60, [ICMPV6, 0, 4, 1, 4, 1, 1, 0]),
            ["fe80::1 > fe80::2", "neighbour solicitation"]
        );
        assert_eq!(
            behind(44, [60, 0, 0, 1, 0, 0, 0, 7]),
            ["fe80::1 > fe80::2 fragment at 0+", "neighbour solicitation"]
        );
    }

    #[test]
    fn arp_asks_and_answers() {
        let mut message = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1];
        message.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        let words = |message: &[u8]| summaries(ETHERTYPE_ARP, message, message.len());
        assert_eq!(words(&message), ["10.0.0.1 asks for 10.0.0.2"]);
        message[7] = 2;
        assert_eq!(words(&message), ["10.0.0.1 is at 02:00:00:00:00:01"]);
    }

    #[test]
    fn what_is_cut_or_wrong_is_called_so() {
        let packet = ipv4_packet(TCP, 0, &[0; 30]);
        for kept in 0..packet.len() {
            let words = summaries(ETHERTYPE_IPV4, &packet[..kept], packet.len()).join(" ");
            let is_whole = kept >= 40;
            assert_eq!(words.contains("cut short"), !is_whole, "{kept}: {words}");
        }
        assert_eq!(
            summaries(ETHERTYPE_IPV4, &packet[..30], 30),
            ["malformed: lengths that do not fit"]
        );
        assert!(of_ipv4(UDP, 0, &[0; 8])[1].contains("malformed"));
        let claims_more = [0, 53, 4, 0, 0, 10, 0, 0, 1];
        assert!(of_ipv4(UDP, 0, &claims_more)[1].contains("malformed"));
        let mut layers = Vec::new();
        assert!(!dissect(&mut layers, 0x9999, &[], 0));
    }
}
