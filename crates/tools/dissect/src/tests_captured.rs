//! Tests with packets that other stacks sent, from `tests/data` of this crate.

use super::*;
use carina_wire::capture::Reader;
use carina_wire::pcapng::{Direction, Item};

/// The captured bytes of a frame, and its original length.
type Cut = (Vec<u8>, usize);

/// The lines of a capture: the summaries of the layers of each packet.
fn lines(link: LinkType, packets: &[Cut]) -> Vec<String> {
    let mut dissector = Dissector::new(Settings::default());
    let interface = Interface {
        link,
        name: "x".into(),
        description: String::new(),
        snap_bytes: 0,
    };
    dissector.add_interface(&interface).expect("an interface");
    let all = packets.iter().map(|(bytes, original)| {
        let packet = Packet {
            interface: 0,
            time_ns: 0,
            direction: Direction::Unknown,
            bytes,
            original_bytes: *original as u32,
        };
        line_of(&dissector.dissect(&packet))
    });
    all.collect()
}

fn line_of(layers: &[Layer]) -> String {
    let gists = layers.iter().map(|layer| {
        let value = layer.fields.iter().find(|(name, _)| *name == "value");
        let value = value.and_then(|(_, value)| value.as_str());
        match value {
            Some(value) if layer.name == "cdap" => format!("{} {value}", layer.summary),
            _ => layer.summary.clone(),
        }
    });
    gists.collect::<Vec<_>>().join(" | ")
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len() / 2).map(|at| digits(2 * at)).collect()
}

/// Asserts that each of the texts is in some line.
fn assert_contain(lines: &[String], wanted: &[&str]) {
    for words in wanted {
        let is_found = lines.iter().any(|line| line.contains(words));
        assert!(is_found, "{words}\n{}", lines.join("\n"));
    }
}

/// Asserts that all bytes are described, except data of applications and what the capture cut off.
fn assert_understood(lines: &[String]) {
    for line in lines {
        assert!(!line.contains("malformed"), "{line}");
        let is_pdu =
            line.contains("management") || line.contains("data") || line.contains("control");
        assert!(
            is_pdu || line.contains(" asks for ") || line.contains(" is at "),
            "{line}"
        );
        let is_cut = line.contains("cut short by the capture");
        assert!(
            !line.contains("management") || line.contains(" | M_") || is_cut,
            "{line}"
        );
    }
}

#[test]
fn rlite_over_udp_is_guessed_and_its_objects_have_names() {
    let text = include_str!("../tests/data/rlite-over-udp.txt");
    let frames: Vec<Cut> = text.lines().filter_map(udp_frame).collect();
    assert_eq!(frames.len(), 90);
    let lines = lines(LinkType::ETHERNET, &frames);
    assert_understood(&lines);
    assert_contain(
        &lines,
        &[
            "10.10.10.4:45228 > 10.10.10.52:3359 | management 1 > neighbour, 61 bytes | M_CONNECT #2 xnorm.IPCP > ynorm.IPCP",
            "10.10.10.52:58776 > 10.10.10.4:45228 | management 1 > neighbour, 61 bytes | M_CONNECT_R #2",
            "M_START_R #3 /mgmt/enrollment {address: 3, lower_difs: \"udp.DIF\", constants: \
             {max_pdu: 65536, address_bytes: 4, port_bytes: 2, cep_bytes: 2, qos_bytes: 2, \
             seq_bytes: 4, length_bytes: 2, rollover: 18446744071562067968, \
             max_pdu_lifetime_ms: 4000, concatenation: false, fragmentation: false, \
             integrity: false, max_retransmit_ms: 1000, max_ack_ms: 200, ctrl_seq_bytes: 4}}",
            "M_WRITE #2 /mgmt/dft/policy \"fully-replicated\"",
            "{lower_flow: {local: \"ynorm.IPCP\", remote: \"xnorm.IPCP\", cost: 1, seq: 1, is_up: true, age_s: 0}}",
            "{neighbour: {ipcp: \"ynorm.IPCP\", instance: \"\", address: 1, lower_difs: \"udp.DIF\"}}",
            "ipcp: \"ynorm.IPCP\", seq: 1}}",
            "{entry: {ipcp: \"ynorm.IPCP\", address: 3}}",
            "M_READ #13 /mgmt/keepalive",
            "M_WRITE /a_data {src: 3, dst: 1, message:",
            "M_CREATE #3 /mgmt/flowalloc/flows {src_app: {ap: \"rpcli1\"",
            "max_sdu_gap: -1",
            "M_DELETE #7 /mgmt/flowalloc/flows/1",
            "data 3:0 > 1:0 cube 0 seq 0 DRF, 20 bytes",
            "control 3:2 > 1:2 #0 ack 1 window 1..514",
        ],
    );
}

/// A frame with the datagram of a line of the file.
fn udp_frame(line: &str) -> Option<Cut> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, _, ends, length, hex] = words[..] else {
        return None;
    };
    let original: usize = length.strip_prefix("len=")?.parse().ok()?;
    let (from, to) = ends.split_once('>')?;
    let end = |text: &str| -> Option<std::net::SocketAddrV4> { text.parse().ok() };
    let (from, to, payload) = (end(from)?, end(to)?, bytes(hex));
    let length = |more: usize| u16::try_from(original + more).ok().map(u16::to_be_bytes);
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend(length(28)?);
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(from.ip().octets());
    frame.extend(to.ip().octets());
    frame.extend(from.port().to_be_bytes());
    frame.extend(to.port().to_be_bytes());
    frame.extend(length(8)?);
    frame.extend([0, 0]);
    frame.extend(&payload);
    // Short frames have padding.
    let cut = original - payload.len();
    frame.resize(frame.len().max(60), 0);
    let original = frame.len() + cut;
    Some((frame, original))
}

#[test]
fn rlite_over_ethernet_is_guessed_from_its_first_pdu() {
    let text = include_str!("../tests/data/rlite-over-ethernet.txt");
    let frames = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, ethertype, to, from, length, hex] = words[..] else {
            return None;
        };
        let original: usize = length.parse().ok()?;
        let mut frame = [bytes(to), bytes(from), bytes(ethertype), bytes(hex)].concat();
        // Short frames have padding.
        frame.resize(frame.len().max(original.min(60)), 0);
        Some((frame, original))
    });
    let frames: Vec<Cut> = frames.collect();
    assert_eq!(frames.len(), 34);
    let lines = lines(LinkType::ETHERNET, &frames);
    assert_understood(&lines);
    assert_contain(
        &lines,
        &[
            "red.n asks for green.n",
            "green.n is at 26:c0:bc:df:1a:31",
            "management 1 > neighbour, 53 bytes | M_CONNECT #2 red.n > green.n",
            "M_START #3 /mgmt/enrollment {address: 1, lower_difs: \"edif\"}",
        ],
    );
}

#[test]
fn irati_over_ethernet_is_known_by_its_arp() {
    let file = include_bytes!("../tests/data/irati-over-ethernet.pcap");
    let mut dissector = Dissector::new(Settings::default());
    let mut reader = Reader::new();
    let mut lines = Vec::new();
    // The file arrives in portions that end within headers and packets.
    for portion in file.chunks(11) {
        reader.feed(portion);
        while let Some(item) = reader.poll().expect("packets") {
            match item {
                Item::Section => dissector.begin_section(),
                Item::Interface(interface) => {
                    assert_eq!(interface.link, LinkType::ETHERNET);
                    dissector.add_interface(interface).expect("an interface");
                }
                Item::Packet(packet) => {
                    let layers = dissector.dissect(&packet);
                    if layers.iter().all(|layer| layer.name != "ipv6") {
                        lines.push(line_of(&layers));
                    }
                }
            }
        }
    }
    assert_eq!(reader.end(), Ok(()));
    assert_understood(&lines);
    assert_contain(
        &lines,
        &[
            "test2.normal.DIF/1// asks for test1.normal.DIF/1//",
            "management 17 > neighbour, 132 bytes | M_CONNECT #1 test2.normal.DIF > test1.normal.DIF",
            "M_START #1 /difm/enr {address: 17, lower_difs: \"eth.DIF\", start_early: false, token: \"\"}",
            "{neighbour: {ipcp: \"test1.normal.DIF\", instance: \"1\", ae: \"\", aei: \"\", address: 16, lower_difs: \"eth.DIF\"}}",
            "token: \"1804289383\"}",
            "ae: \"Management\", aei: \"1804289383\", address: 0}",
            "{flow_state: {ipcp: \"test2.normal.DIF\", address: 17, neighbour: \"test1.normal.DIF\", neighbour_address: 16, cost: 1, seq: 1, is_up: true, age: 0}}",
            "M_CREATE #1 /fa/flows/key=17-2 {src_app: {ap: \"rpcli1\"",
            "msg_boundaries: true, loss: 10000}",
            "data 17:1 > 16:1 cube 1 seq 191097458 DRF, 20 bytes",
            "control 16:1 > 17:1 #1 window 0..191097509",
            "cube 2",
            "#1 ack 207762311 window 207762311..207762361",
        ],
    );
}

/// Dissects every prefix of every frame, and every frame with one byte changed. Each must have a
/// description and none may cause a panic.
#[test]
fn damaged_frames_of_others_do_not_panic() {
    let text = include_str!("../tests/data/rlite-over-udp.txt");
    let frames: Vec<Cut> = text.lines().filter_map(udp_frame).take(30).collect();
    for (bytes, original) in frames {
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let cuts = [(bytes[..at].to_vec(), original), (changed, original)];
            assert_eq!(lines(LinkType::ETHERNET, &cuts).len(), 2);
        }
    }
    let file = include_bytes!("../tests/data/irati-over-ethernet.pcap");
    for at in 0..400 {
        let mut changed = file[..1000].to_vec();
        changed[at] ^= 0xff;
        let (mut reader, mut packets) = (Reader::new(), 0);
        reader.feed(&changed);
        while let Ok(Some(_)) = reader.poll() {
            packets += 1;
        }
        assert!(packets <= changed.len() / 16);
    }
}
