//! Messages that no correct member would send: they are counted or reported, and have no other
//! effect.

use carina_cdap::{Message, Opcode, Rules, Value};
use carina_ipcp::Event;
use carina_wire::FlowSpec;

use crate::irati::net::{Net, SECOND, chain, config};

/// A management PDU between neighbours.
fn pdu(src: u8, message: &Message) -> Vec<u8> {
    raw(src, &Rules::IRATI.encode(message))
}

fn raw(src: u8, message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(19 + message.len()).expect("a short message");
    let mut pdu = vec![1, 0, 0, src, 0, 1, 0, 0, 0, 0, 0, 0x40, 0];
    pdu.extend(len.to_le_bytes());
    pdu.extend([0; 4]);
    pdu.extend(message);
    pdu
}

fn with(opcode: Opcode, class: &str, name: &str, value: Vec<u8>) -> Message {
    Message::object(opcode, class, name).with_value(Value::Bytes(value))
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len > 127 {
        field.push((len & 127) as u8 | 128);
        len >>= 7;
    }
    field.push(len as u8);
    field.extend(bytes);
    field
}

/// An encoded flow-state object.
fn link(from: &str, address: u8, to: &str, to_address: u8, seq: u8) -> Vec<u8> {
    let mut object = field(1, from.as_bytes());
    object.extend([0x10, address]);
    object.extend(field(3, to.as_bytes()));
    object.extend([0x20, to_address, 0x28, 1, 0x30, seq, 0x38, 1, 0x40, 0]);
    field(1, &object)
}

fn entry(name: &str, address: u8) -> Vec<u8> {
    let mut naming = field(1, name.as_bytes());
    naming.extend([0x12, 0, 0x1a, 0, 0x22, 0]);
    let mut entry = field(1, &naming);
    entry.extend([0x10, address, 0x18, 0]);
    field(1, &entry)
}

/// Two members, with an application that must stay reachable.
fn pair() -> Net {
    let mut net = chain(1, &["a", "b"], &config());
    net.register("a", "app");
    net.run(SECOND);
    net
}

fn works_still(net: &mut Net) {
    let key = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("b", key), Some(Ok(())));
    assert_eq!(net.names("a", "/routing/table").len(), 1);
}

#[test]
fn nonsense_is_counted_under_what_is_wrong_with_it() {
    let mut net = pair();
    let links = |value: Vec<u8>| with(Opcode::Write, "FlowStateObjects", "/ra/fsos", value);
    let entries = |value: Vec<u8>| {
        let name = "/difm/nsm/dft";
        with(Opcode::Create, "DirectoryForwardingTable", name, value)
    };
    let a_data = |value: Vec<u8>| with(Opcode::Write, "a_data", "a_data", value);
    let own = net.address("a");
    let to_own = |inner: &[u8]| {
        let mut value = vec![0x08, 9, 0x10];
        value.extend(varint(own));
        value.extend(field(3, inner));
        value
    };
    let flow = |value: Vec<u8>| {
        let message = Message {
            invoke_id: 1,
            ..with(Opcode::Create, "Flow", "/fa/flows/key=9-1", value)
        };
        Rules::IRATI.encode(&message)
    };
    let cases = [
        (links(vec![0xff]), "links-unreadable"),
        (links(link("x", 0, "y", 1, 1)), "link-unsound"),
        (links(link("x", 3, "x", 3, 1)), "link-unsound"),
        (links(link("x\n", 3, "y", 4, 1)), "link-unsound"),
        (entries(vec![1, 2, 3]), "entries-unreadable"),
        (entries(entry("", 4)), "entry-unsound"),
        (entries(entry("z", 0)), "entry-unsound"),
        (a_data(vec![0xff]), "a-data-unreadable"),
        (a_data(to_own(b"nothing")), "malformed"),
        (a_data(to_own(&flow(vec![0xff]))), "flow-unreadable"),
        (a_data(to_own(&flow(vec![0x18, 1]))), "flow-unsound"),
        (with(Opcode::Create, "x", "/nowhere", vec![]), "refused"),
        (Message::object(Opcode::Read, "x", "/y"), "read-without-id"),
    ];
    for (message, counter) in cases {
        let before = net.count("a", counter);
        net.inject(0, 1, pdu(17, &message));
        assert_eq!(net.count("a", counter), before + 1, "{counter}");
    }
    net.inject(0, 1, raw(17, b"\x10\xff"));
    net.inject(0, 1, raw(17, &[0xff; 40]));
    let answer = Message {
        invoke_id: 1,
        ..Message::new(Opcode::StopR)
    };
    net.inject(0, 1, pdu(17, &answer));
    assert_eq!(net.count("a", "response-unsolicited"), 1);
    works_still(&mut net);
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[test]
fn a_neighbour_that_floods_fills_tables_and_nothing_else() {
    let mut net = pair();
    let apps = |net: &Net| {
        let pick = |event: &Event| matches!(event, Event::Reachable { .. }).then_some(());
        net.told("a", pick).len()
    };
    for round in 0..2_000 {
        let mut links = Vec::new();
        let mut entries = Vec::new();
        for at in 0..15 {
            links.extend(link(&format!("x{round}.{at}"), 77, "y", 78, 1));
            entries.extend(entry(&format!("app{round}.{at}"), 77));
        }
        let links = with(Opcode::Write, "FlowStateObjects", "/ra/fsos", links);
        let name = "/difm/nsm/dft";
        let entries = with(Opcode::Create, "DirectoryForwardingTable", name, entries);
        net.inject(0, 1, pdu(17, &links));
        net.inject(0, 1, pdu(17, &entries));
    }
    assert!(net.count("a", "links-full") > 0);
    // No reachable member holds these applications.
    assert_eq!(apps(&net), 1);
    let (full, shown) = (
        net.count("a", "links-full"),
        net.names("a", "/routing/links"),
    );
    assert_eq!(shown.len() as u64 + full, 30_000 + 2);
    net.run(SECOND);
    works_still(&mut net);
}

#[test]
fn own_links_and_entries_that_are_false_are_taken_back() {
    let mut net = pair();
    let false_link = with(
        Opcode::Write,
        "FlowStateObjects",
        "/ra/fsos",
        link("a", 5, "nobody", 99, 100),
    );
    net.inject(0, 1, pdu(17, &false_link));
    assert_eq!(net.count("a", "links-corrected"), 1);
    let down = with(
        Opcode::Write,
        "FlowStateObjects",
        "/ra/fsos",
        link("a", 5, "b", 99, 110),
    );
    net.inject(0, 1, pdu(17, &down));
    assert_eq!(net.count("a", "links-corrected"), 2);
    net.run(SECOND);
    works_still(&mut net);
}

#[test]
fn an_enrollment_out_of_order_gets_nowhere() {
    let mut net = Net::new(3);
    net.bootstrap("a", config());
    net.add("b", config());
    let wire = net.wire("a", "b");
    net.members.remove("b");
    for (opcode, name) in [
        (Opcode::Start, "/difm/enr"),
        (Opcode::Stop, "/difm/enr"),
        (Opcode::Start, "/difm/ops"),
        (Opcode::Read, "/difm/enr/neighs"),
        (Opcode::Write, "/ra/fsos"),
        (Opcode::Create, "/difm/nsm/dft"),
        (Opcode::Write, "challenge reply"),
    ] {
        let message = Message {
            invoke_id: 1,
            ..with(opcode, "x", name, vec![])
        };
        net.inject(wire, 0, pdu(0, &message));
    }
    for opcode in [Opcode::StartR, Opcode::StopR, Opcode::ReadR] {
        let message = Message {
            invoke_id: 1,
            ..Message::new(opcode)
        };
        net.inject(wire, 0, pdu(0, &message));
    }
    net.run(120 * SECOND);
    assert!(
        net.names("a", "/neighbours")
            .iter()
            .all(|name| name.starts_with("n1-"))
    );
    assert_eq!(net.names("a", "/directory"), Vec::<String>::new());
}

#[test]
fn any_bytes_are_harmless() {
    let mut net = pair();
    let mut state = 7u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Real PDUs from a capture, with a few bytes changed.
    let captured: Vec<Vec<u8>> = include_str!("captured.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let hex = line.rsplit(' ').next().expect("bytes");
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            (0..hex.len()).step_by(2).map(byte).collect()
        })
        .collect();
    for round in 0..20_000 {
        let mut bytes = captured[random() as usize % captured.len()].clone();
        for _ in 0..round % 4 {
            let at = 15 + random() as usize % (bytes.len() - 15);
            bytes[at] = random() as u8;
        }
        net.inject(0, 1, bytes);
        if round % 100 == 0 {
            net.run(SECOND / 50);
        }
    }
    // Whatever was injected, the member still runs and becomes idle.
    net.run(300 * SECOND);
    assert!(net.is_member("a"));
    net.run_until(300, "both are neighbours again", |net| {
        net.names("a", "/neighbours").contains(&"b".to_string())
            && net.names("b", "/neighbours").contains(&"a".to_string())
    });
    works_still(&mut net);
}
