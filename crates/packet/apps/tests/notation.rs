//! Builds frames from text, for the scripts of the tests.
//!
//! ```text
//! :1 > :2 | ip 10.0.0.1 > 10.0.0.2 ttl 64 | udp 5 > 6 | "hello"
//! ```
//!
//! Layers are in their order, separated by `|`. Lengths, types and checksums are computed. The code
//! is independent of the code under test, so that an error in one cannot hide in the other.
//!
//! | layer | text |
//! |---|---|
//! | Ethernet | `MAC > MAC [type HEX]`; `:1` is 02:00:00:00:00:01, `*` is broadcast |
//! | 802.1Q | `vlan N [priority N] [tpid HEX]` |
//! | IPv4 | `ip A > B [ttl N] [class N] [proto N] [fragment N] [sum bad]` |
//! | IPv6 | `ip6 A > B [hops N] [class N] [next N]` |
//! | UDP | `udp N > N` |
//! | TCP | `tcp N > N [flags HEX]` |
//! | ICMP | `echo request N N`, `echo reply N N`, `[sum bad]` |
//! | ARP | `arp request MAC A > MAC A`, `arp reply MAC A > MAC A` |
//! | ICMPv6 | `neighbour TYPE FLAGS TARGET [OPTION MAC]` |
//! | bytes | `"text"`; `hex 00ff…`, also before layers; `pad N`: zeros up to N bytes in all |

use std::net::{Ipv4Addr, Ipv6Addr};

/// Builds the bytes of a frame.
pub(crate) fn frame(text: &str) -> Vec<u8> {
    let layers: Vec<&str> = text.split('|').map(str::trim).collect();
    let bytes = build(&layers, None);
    match layers.last().and_then(|last| last.strip_prefix("pad ")) {
        Some(length) => padded(bytes, number(length) as usize),
        None => bytes,
    }
}

fn padded(mut bytes: Vec<u8>, length: usize) -> Vec<u8> {
    assert!(bytes.len() <= length, "{} bytes are there", bytes.len());
    bytes.resize(length, 0);
    bytes
}

/// The addresses of the IP header around a layer, as in its pseudo header, and whether it is IPv6.
type Around = (Vec<u8>, bool);

fn build(layers: &[&str], around: Option<&Around>) -> Vec<u8> {
    let Some((layer, inner)) = layers.split_first() else {
        return Vec::new();
    };
    let words: Vec<&str> = layer.split_whitespace().collect();
    let option = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    match words[..] {
        [text, ..] if text.starts_with('"') => layer.trim_matches('"').as_bytes().to_vec(),
        ["hex", digits] => [unhex(digits), build(inner, None)].concat(),
        ["pad", _] => Vec::new(),
        ["vlan", id, ..] => {
            let control = option("priority").map_or(0, number) << 13 | number(id);
            let mut bytes = (control as u16).to_be_bytes().to_vec();
            bytes.extend(ethertype(inner).to_be_bytes());
            bytes.extend(build(inner, None));
            bytes
        }
        ["ip", from, ">", to, ..] => ip4(inner, [from, to], &option),
        ["ip6", from, ">", to, ..] => ip6(inner, [from, to], &option),
        ["udp", from, ">", to] => udp(inner, [from, to], around),
        ["tcp", from, ">", to, ..] => tcp(inner, [from, to], option("flags"), around),
        ["echo", kind, id, sequence, ..] => {
            let mut bytes = vec![if kind == "request" { 8 } else { 0 }, 0, 0, 0];
            bytes.extend((number(id) as u16).to_be_bytes());
            bytes.extend((number(sequence) as u16).to_be_bytes());
            bytes.extend(build(inner, None));
            let sum = sum(&bytes) ^ u16::from(option("sum") == Some("bad"));
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
            bytes
        }
        ["neighbour", kind, flags, target, ref link @ ..] => {
            let mut bytes = vec![number(kind) as u8, 0, 0, 0];
            bytes.extend([unhex(flags), vec![0; 3]].concat());
            bytes.extend(target.parse::<Ipv6Addr>().unwrap().octets());
            if let [option, station] = link {
                bytes.extend([number(option) as u8, 1]);
                bytes.extend(mac(station));
            }
            let (addresses, _) = around.expect("ICMPv6 is in IP");
            let summed = [&addresses[..], &[0, 58, 0, bytes.len() as u8], &bytes].concat();
            bytes[2..4].copy_from_slice(&sum(&summed).to_be_bytes());
            bytes
        }
        ["arp", kind, from_mac, from, ">", to_mac, to] => {
            let operation = if kind == "request" { 1 } else { 2 };
            let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, operation];
            for (station, address) in [(from_mac, from), (to_mac, to)] {
                bytes.extend(mac(station));
                bytes.extend(address.parse::<Ipv4Addr>().unwrap().octets());
            }
            bytes.extend(build(inner, None));
            bytes
        }
        [from, ">", to, ..] => {
            let mut bytes = [mac(to), mac(from)].concat();
            let known = option("type").map(|hex| u16::from_str_radix(hex, 16).unwrap());
            bytes.extend(known.unwrap_or_else(|| ethertype(inner)).to_be_bytes());
            bytes.extend(build(inner, None));
            bytes
        }
        _ => panic!("no layer: {layer:?}"),
    }
}

fn ethertype(inner: &[&str]) -> u16 {
    let layer = inner.first().copied().unwrap_or_default();
    match layer.split_whitespace().next() {
        Some("ip") => 0x0800,
        Some("ip6") => 0x86dd,
        Some("arp") => 0x0806,
        Some("vlan") if layer.contains("tpid 88a8") => 0x88a8,
        Some("vlan") => 0x8100,
        _ => 0xffff,
    }
}

fn protocol(inner: &[&str]) -> u8 {
    match inner
        .first()
        .and_then(|layer| layer.split_whitespace().next())
    {
        Some("tcp") => 6,
        Some("udp") => 17,
        Some("echo") => 1,
        Some("neighbour") => 58,
        _ => 253,
    }
}

fn ip4<'a>(inner: &[&str], ends: [&str; 2], option: &dyn Fn(&str) -> Option<&'a str>) -> Vec<u8> {
    let ends = ends.map(|end| end.parse::<Ipv4Addr>().unwrap().octets());
    let payload = build(inner, Some(&(ends.concat(), false)));
    let mut bytes = vec![0; 20];
    (bytes[0], bytes[1]) = (0x45, option("class").map_or(0, number) as u8);
    bytes[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    let fragment = option("fragment").map_or(0, number) as u16;
    bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
    bytes[8] = option("ttl").map_or(64, number) as u8;
    bytes[9] = option("proto").map_or(protocol(inner), |text| number(text) as u8);
    bytes[12..16].copy_from_slice(&ends[0]);
    bytes[16..20].copy_from_slice(&ends[1]);
    let sum = sum(&bytes) ^ u16::from(option("sum") == Some("bad"));
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn ip6<'a>(inner: &[&str], ends: [&str; 2], option: &dyn Fn(&str) -> Option<&'a str>) -> Vec<u8> {
    let ends = ends.map(|end| end.parse::<Ipv6Addr>().unwrap().octets());
    let payload = build(inner, Some(&(ends.concat(), true)));
    let class = option("class").map_or(0, number) as u8;
    let mut bytes = vec![0x60 | class >> 4, class << 4, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.push(option("next").map_or(protocol(inner), |text| number(text) as u8));
    bytes.push(option("hops").map_or(64, number) as u8);
    bytes.extend(ends.concat());
    bytes.extend(payload);
    bytes
}

fn tcp(inner: &[&str], ports: [&str; 2], flags: Option<&str>, around: Option<&Around>) -> Vec<u8> {
    let ports = ports.map(|port| (number(port) as u16).to_be_bytes());
    let mut bytes = ports.concat();
    let flags = flags.map_or(0x10, |hex| u8::from_str_radix(hex, 16).unwrap());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(build(inner, None));
    let (addresses, _) = around.expect("TCP is in IP");
    let mut summed = addresses.clone();
    summed.extend([0, 6]);
    summed.extend((bytes.len() as u16).to_be_bytes());
    summed.extend(&bytes);
    bytes[16..18].copy_from_slice(&sum(&summed).to_be_bytes());
    bytes
}

fn udp(inner: &[&str], ports: [&str; 2], around: Option<&Around>) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(
        ports
            .map(|port| (number(port) as u16).to_be_bytes())
            .concat(),
    );
    let payload = build(inner, None);
    let length = (8 + payload.len() as u16).to_be_bytes();
    bytes.extend(length);
    bytes.extend([0, 0]);
    bytes.extend(payload);
    let (addresses, _) = around.expect("UDP is in IP");
    let mut summed = addresses.clone();
    summed.extend([0, 17]);
    summed.extend(length);
    summed.extend(&bytes);
    bytes[6..8].copy_from_slice(&sum(&summed).to_be_bytes());
    bytes
}

fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}

fn mac(text: &str) -> Vec<u8> {
    match text.strip_prefix(':') {
        _ if text == "*" => vec![0xff; 6],
        Some(last) => vec![2, 0, 0, 0, 0, u8::from_str_radix(last, 16).unwrap()],
        None => unhex(&text.replace(':', "")),
    }
}

fn unhex(digits: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

fn number(text: &str) -> u32 {
    text.parse()
        .unwrap_or_else(|_| panic!("no number: {text:?}"))
}
