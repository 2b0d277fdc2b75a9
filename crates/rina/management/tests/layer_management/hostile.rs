//! Messages that no correct member would send.

use carina_cdap::{Message, Opcode, Value};
use carina_wire::dif::{
    Address, CepId, NEIGHBOUR_CHECK_BYTES, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax,
    append_neighbour_check,
};

use carina_ipcp::Command;

use crate::layer_management::net::{Net, SECOND, chain, config};

/// A management PDU with these addresses.
pub(super) fn pdu(src: u64, dst: u64, message: &[u8]) -> Vec<u8> {
    let pci = Pci {
        kind: PduType::Management,
        dst: Address(dst),
        src: Address(src),
        qos: QosId(0),
        dst_cep: CepId(0),
        src_cep: CepId(0),
        drf: false,
        ecn: false,
        seq: 0,
    };
    let mut header = [0; PCI_BYTES_MAX];
    let (hops, check) = match dst {
        0 => (0, NEIGHBOUR_CHECK_BYTES),
        _ => (64, 0),
    };
    let len = Syntax::default()
        .encode(&pci, None, message.len() + check, hops, &mut header)
        .expect("it fits");
    let mut pdu = [&header[..len], message].concat();
    if check > 0 {
        append_neighbour_check(&mut pdu);
    }
    pdu
}

fn address(net: &Net, name: &str) -> u64 {
    net.members[name].address().expect("a member").0
}

fn count(net: &mut Net, at: &str, counter: &str) -> u64 {
    let shown = net.read_rib(at, "/counters", 0);
    let field = shown[0].fields.iter().find(|(name, _)| name == counter);
    field.map_or(0, |(_, value)| match value {
        carina_ipcp::api::Scalar::Uint(count) => *count,
        _ => 0,
    })
}

#[test]
fn wrong_messages_are_counted_and_logged_once() {
    let mut net = chain(1, &["a", "b"], config());
    let (a, b) = (address(&net, "a"), address(&net, "b"));
    let bytes = |value: &[u8]| Value::Bytes(value.to_vec());
    let mut wrong = Vec::new();
    let mut add = |counter, message: Message| wrong.push((counter, message));
    let with_id = |mut message: Message| {
        message.invoke_id = 7;
        message
    };
    add(
        "unknown-object",
        with_id(Message::object(Opcode::Read, "", "/no/such/thing")),
    );
    add(
        "wrong-class",
        with_id(Message::object(Opcode::Read, "flow", "/dif")),
    );
    add(
        "wrong-operation",
        with_id(Message::object(Opcode::Stop, "", "/dif")),
    );
    let flow = Message::object(Opcode::Create, "flow", &format!("/flows/{b}-1"));
    add(
        "malformed-value",
        with_id(flow.with_value(bytes(b"\xff\xff"))),
    );
    let write = Message::object(Opcode::Write, "policy", "/policies/routing");
    add("malformed-value", with_id(write.with_value(bytes(&[]))));
    for (counter, message) in &wrong {
        let before = count(&mut net, "a", counter);
        for _ in 0..3 {
            net.inject(0, 1, pdu(b, a, &message.encode()));
        }
        assert_eq!(count(&mut net, "a", counter), before + 3, "{counter}");
    }
    net.inject(0, 1, pdu(b, a, b"no message at all"));
    net.inject(0, 1, pdu(999, a, &wrong[0].1.encode()));
    assert_eq!(count(&mut net, "a", "unknown-member"), 1);
    let notices = net.notices("a");
    assert_eq!(notices.len(), 6, "{notices:?}");
    net.run(20 * SECOND);
    assert_eq!(net.names("a", "/neighbours"), ["b"]);
}

#[test]
fn nothing_but_connecting_is_heard_from_strangers() {
    let mut net = Net::new(2);
    net.bootstrap("a", config());
    net.add("b", None, "secret");
    // B cannot become a member of `net`, since it belongs to another DIF.
    net.add_to("elsewhere", "c", None, "secret");
    net.wire("c", "a");
    net.run(SECOND);
    let a = address(&net, "a");
    let mut read = Message::object(Opcode::Read, "", "/dif");
    read.invoke_id = 1;
    net.inject(0, 1, pdu(a, a, &read.encode()));
    net.inject(0, 1, pdu(0, 0, &read.encode()));
    let mut start = Message::object(Opcode::Start, "channel", "/channel");
    start.invoke_id = 2;
    net.inject(0, 1, pdu(0, 0, &start.encode()));
    assert!(count(&mut net, "a", "not-connected") >= 2);
    assert!(
        net.names("a", "/neighbours")
            .iter()
            .all(|name| name.starts_with("n1-"))
    );
}

#[test]
fn random_and_mutated_messages_do_no_harm() {
    let mut net = chain(3, &["a", "b", "c"], config());
    net.accepts.insert("server".into());
    net.order(
        "c",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let key = net.allocate("a", "client", "server", carina_wire::FlowSpec::reliable());
    net.run(SECOND);
    let (a, b) = (address(&net, "a"), address(&net, "b"));
    let mut samples = Vec::new();
    for (opcode, class, name) in [
        (Opcode::Create, "flow", format!("/flows/{b}-2")),
        (Opcode::Delete, "flow", format!("/flows/{b}-2")),
        (Opcode::Read, "", "/".to_string()),
        (
            Opcode::Write,
            "authentication",
            "/authentication".to_string(),
        ),
        (Opcode::Start, "channel", "/channel".to_string()),
    ] {
        let mut message =
            Message::object(opcode, class, &name).with_value(Value::Bytes(vec![8, 1, 17, 3]));
        message.invoke_id = 3;
        samples.push(message.encode());
    }
    let mut random: u64 = 99;
    for _ in 0..3000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mut bytes = samples[(random >> 33) as usize % samples.len()].clone();
        for shift in [10, 20] {
            let at = (random >> shift) as usize % bytes.len();
            bytes[at] = (random >> 50) as u8;
        }
        let dst = if random >> 60 & 1 == 0 { 0 } else { a };
        net.inject(0, 1, pdu(b, dst, &bytes));
    }
    net.run(10 * SECOND);
    let other = net.incoming["c"][0];
    net.write("a", key, b"undisturbed");
    net.run(SECOND);
    assert_eq!(net.read("c", other), b"undisturbed");
    assert_eq!(net.names("a", "/neighbours"), ["b"]);
}
