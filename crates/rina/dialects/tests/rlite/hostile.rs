//! Members that send false information, and random bytes.

use carina_cdap::{Message, Opcode, Party, Rules, Value};
use carina_ipcp::{Command, Event};
use carina_time::Duration;
use carina_wire::FlowSpec;

use crate::rlite::net::{Net, SECOND, line, pdu_of};

/// Encodes a Protocol Buffers field with bytes.
fn bytes_field(field: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(bytes);
    out
}

/// Encodes a Protocol Buffers field with a number.
fn number_field(field: u8, mut number: u64) -> Vec<u8> {
    let mut out = vec![field << 3];
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

pub(super) fn entries(class: &str, name: &str, opcode: Opcode, list: &[Vec<u8>]) -> Message {
    let value: Vec<u8> = list
        .iter()
        .flat_map(|entry| bytes_field(1, entry))
        .collect();
    Message::object(opcode, class, name).with_value(Value::Bytes(value))
}

fn link(from: &str, to: &str, seq: u64) -> Vec<u8> {
    let parts = [
        bytes_field(1, from.as_bytes()),
        bytes_field(2, to.as_bytes()),
        number_field(3, 1),
        number_field(4, seq),
        number_field(5, 1),
    ];
    parts.concat()
}

pub(super) fn member(name: &str, address: u64) -> Vec<u8> {
    [bytes_field(1, name.as_bytes()), number_field(3, address)].concat()
}

pub(super) fn registration(app: &str, holder: &str, seq: u64) -> Vec<u8> {
    let app = bytes_field(1, app.as_bytes());
    let parts = [
        bytes_field(1, &app),
        bytes_field(2, holder.as_bytes()),
        number_field(3, seq),
    ];
    parts.concat()
}

fn links(list: &[Vec<u8>]) -> Message {
    entries(
        "lfdb_entries",
        "/mgmt/routing/routing",
        Opcode::Create,
        list,
    )
}

pub(super) fn members(list: &[Vec<u8>]) -> Message {
    entries(
        "neigh_entries",
        "/mgmt/neighbors/entries",
        Opcode::Create,
        list,
    )
}

pub(super) fn directory(list: &[Vec<u8>]) -> Message {
    entries("dft_entries", "/mgmt/dft/table", Opcode::Create, list)
}

/// Sends messages to the first end of wire 0 in the name of the other end.
pub(super) struct Liar {
    source: u64,
    next_id: i32,
}

impl Liar {
    pub(super) fn new(source: u64) -> Liar {
        Liar {
            source,
            next_id: 1_000,
        }
    }

    pub(super) fn say(&mut self, net: &mut Net, to: usize, mut message: Message) {
        self.next_id += 1;
        message.invoke_id = self.next_id;
        message.version = 1;
        net.inject(0, to, pdu_of(&message, self.source));
    }
}

/// Two members; PDUs injected at `a` seem to come from `b`.
fn two(seed: u64) -> (Net, Liar) {
    let net = line(seed, &["a", "b"]);
    let source = net.address("b");
    (net, Liar::new(source))
}

#[test]
fn bytes_that_are_no_messages_are_counted() {
    let (mut net, _) = two(1);
    let good = pdu_of(&links(&[link("x", "y", 1)]), 2);
    for cut in 28..good.len() {
        let mut pdu = good[..cut].to_vec();
        let length = u16::try_from(pdu.len()).expect("short");
        pdu[24..26].copy_from_slice(&length.to_le_bytes());
        net.inject(0, 1, pdu);
    }
    let mut random = 88_172_645_463_325_252_u64;
    for _ in 0..500 {
        let mut pdu = good.clone();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = 28 + random as usize % (pdu.len() - 28);
        pdu[at] ^= (random >> 40) as u8 | 1;
        net.inject(0, 1, pdu);
    }
    assert!(
        net.count("a", "malformed") > 0,
        "{:?}",
        net.objects("a", "/counters")
    );
    net.run(SECOND);
    assert_eq!(net.names("a", "/neighbours"), ["b"]);
}

#[test]
fn tables_are_bounded() {
    let (mut net, mut liar) = two(2);
    for round in 0..1_200_u64 {
        let list = |entry: &dyn Fn(u64) -> Vec<u8>| -> Vec<Vec<u8>> {
            (0..20).map(|index| entry(round * 20 + index)).collect()
        };
        let all = [
            links(&list(&|n| {
                link(&format!("from-{n}"), &format!("to-{n}"), 1)
            })),
            members(&list(&|n| member(&format!("member-{n}"), n + 10))),
            directory(&list(&|n| registration(&format!("app-{n}"), "b", 1))),
            entries(
                "aa_entries",
                "/mgmt/addralloc/table",
                Opcode::Create,
                &list(&|n| [bytes_field(1, b"somebody"), number_field(2, n + 1)].concat()),
            ),
        ];
        for message in all {
            liar.say(&mut net, 1, message);
        }
        // Invoke ids of unanswered requests are forgotten after a while.
        if round % 200 == 0 {
            net.now += 20 * SECOND;
            net.run(Duration::ZERO);
        }
    }
    assert!(net.names("a", "/routing/links").len() <= 16_400);
    assert!(net.names("a", "/members").len() <= 4_200);
    assert!(net.names("a", "/directory").len() <= 16_400);
    assert!(net.count("a", "lower-flows-too-many") > 0);
    assert!(net.names("a", "/members").len() > 3);
    assert!(net.count("a", "directory-full") > 0);
}

/// Records have no sequence numbers, and a member that gets its N-1 flows sends many versions.
#[test]
fn versions_of_a_record_do_not_go_round() {
    let mut net = line(8, &["c", "a", "b"]);
    let source = net.address("b");
    let mut next_id = 1_000;
    let mut told_on = |net: &mut Net, address: u64, difs: &[&str]| {
        let difs = difs.iter().flat_map(|dif| bytes_field(4, dif.as_bytes()));
        let record = [member("x", address), difs.collect()].concat();
        next_id += 1;
        let message = Message {
            invoke_id: next_id,
            version: 1,
            ..members(&[record])
        };
        net.take_sent(0, 0);
        net.inject(1, 1, pdu_of(&message, source));
        net.take_sent(0, 0).len()
    };
    let versions: [&[&str]; 4] = [&["one"], &["two"], &["one", "three"], &[]];
    for (round, wanted) in [[1, 1, 1, 0], [0; 4], [0; 4]].into_iter().enumerate() {
        let count = versions.map(|difs| told_on(&mut net, 900, difs));
        assert_eq!(count, wanted, "round {round}");
    }
    assert_eq!(told_on(&mut net, 901, &[]), 1);
    assert_eq!(told_on(&mut net, 900, &["one"]), 0);
    assert_eq!(net.count("a", "members-outdated"), 1);
    // Later versions are not forwarded either: x is not on the route to b.
    net.run(20 * SECOND);
    assert_eq!(told_on(&mut net, 900, &["one"]), 0);
    assert_eq!(net.count("a", "members-outdated"), 2);
}

#[test]
fn entries_of_neighbours_come_from_themselves_only() {
    let mut net = line(3, &["c", "a", "b"]);
    let (a, b, c) = (net.address("a"), net.address("b"), net.address("c"));
    let mut liar = Liar {
        source: c,
        next_id: 1_000,
    };
    // c, at the other end of the first wire, sends false addresses of a and b, and withdraws a's
    // links.
    liar.say(&mut net, 0, members(&[member("a", 77), member("b", 78)]));
    let gone = entries(
        "lfdb_entries",
        "/mgmt/routing/routing",
        Opcode::Delete,
        &[link("a", "b", 500), link("a", "c", 500)],
    );
    liar.say(&mut net, 0, gone);
    liar.say(&mut net, 0, directory(&[registration("app", "a", 9)]));
    net.run(2 * SECOND);
    assert_eq!((net.address("a"), net.address("b")), (a, b));
    let shown = format!("{:?}", net.objects("a", "/members/b"));
    assert!(shown.contains(&format!("Uint({b})")), "{shown}");
    // a's links remain, with later versions than those that c withdrew.
    let links = format!("{:?}", net.objects("b", "/routing/links"));
    assert!(links.contains("Uint(501)"), "{links}");
    assert_eq!(net.names("b", "/routing/table").len(), 2);
    // a does not hold this application, and withdraws the entry.
    assert!(net.names("b", "/directory").is_empty());
}

fn a_data(inner: &Message, source: u64, destination: u64) -> Message {
    let value = [
        number_field(1, source),
        number_field(2, destination),
        bytes_field(3, &Rules::RLITE.encode(inner)),
    ];
    Message::object(Opcode::Write, "a_data", "/a_data").with_value(Value::Bytes(value.concat()))
}

/// A request for a flow from an application at `member`.
fn flow_request(member: &str) -> Message {
    let app = |name: &str| bytes_field(1, name.as_bytes());
    let ids = [number_field(1, 0), number_field(2, 9), number_field(3, 0)].concat();
    let value = [
        bytes_field(1, &app("client")),
        bytes_field(2, &app("app")),
        number_field(3, 5),
        number_field(4, 0),
        bytes_field(5, member.as_bytes()),
        bytes_field(6, b"a"),
        bytes_field(7, &ids),
    ];
    let message = Message::object(Opcode::Create, "flow", "/mgmt/flowalloc/flows");
    Message {
        invoke_id: 3,
        ..message.with_value(Value::Bytes(value.concat()))
    }
}

fn inject_a_data(net: &mut Net, message: &Message, source: u64) {
    let mut pdu = pdu_of(message, source);
    let destination = u32::try_from(net.address("a")).expect("4 bytes");
    pdu[12..16].copy_from_slice(&destination.to_le_bytes());
    net.inject(0, 1, pdu);
}

#[test]
fn flows_are_of_whom_they_say() {
    let (mut net, liar) = two(4);
    let (a, b) = (net.address("a"), liar.source);
    net.order("a", Command::Register { name: "app".into() });
    let offers = |net: &Net| {
        let offered = net.told("a", |event| {
            matches!(event, Event::Incoming { .. }).then_some(())
        });
        offered.len()
    };
    // Another source than in the PCI; a name with another address; an unknown name; a message of
    // another member.
    inject_a_data(&mut net, &a_data(&flow_request("b"), b + 1, a), b);
    inject_a_data(&mut net, &a_data(&flow_request("a"), b, a), b);
    inject_a_data(&mut net, &a_data(&flow_request("z"), b, a), b);
    inject_a_data(&mut net, &a_data(&flow_request("b"), b, a + 1), b);
    assert_eq!(offers(&net), 0);
    for what in [
        "a-data-forged",
        "flow-of-another-member",
        "flow-of-unknown-member",
        "a-data-of-another",
    ] {
        assert_eq!(net.count("a", what), 1, "{what}");
    }
    inject_a_data(&mut net, &a_data(&flow_request("b"), b, a), b);
    assert_eq!(offers(&net), 1);
    // The same request again is a duplicate.
    inject_a_data(&mut net, &a_data(&flow_request("b"), b, a), b);
    assert_eq!(offers(&net), 1);
    assert_eq!(net.count("a", "flow-request-duplicated"), 1);
    // Answers and ends without a flow.
    let answer = Message {
        opcode: Opcode::CreateR,
        ..flow_request("b")
    };
    inject_a_data(&mut net, &a_data(&answer, b, a), b);
    let end = Message::object(Opcode::Delete, "flow", "/mgmt/flowalloc/flows/4000");
    inject_a_data(&mut net, &a_data(&end, b, a), b);
    assert_eq!(net.count("a", "response-unsolicited"), 1);
    assert_eq!(net.count("a", "end-of-no-flow"), 1);
}

#[test]
fn a_flow_is_ended_by_its_other_end_only() {
    let mut net = line(5, &["c", "a", "b"]);
    net.order("b", Command::Register { name: "app".into() });
    net.accepts.insert("app".into());
    net.run(SECOND);
    let key = net.allocate("a", "client", "app", FlowSpec::unreliable());
    net.run(SECOND);
    assert_eq!(net.allocated("a", key), Some(Ok(())));
    let (a, c) = (net.address("a"), net.address("c"));
    let name = format!("/mgmt/flowalloc/flows/{}", key.0);
    let end = Message::object(Opcode::Delete, "flow", &name);
    let mut pdu = pdu_of(&a_data(&end, c, a), c);
    let destination = u32::try_from(a).expect("4 bytes");
    pdu[12..16].copy_from_slice(&destination.to_le_bytes());
    net.inject(0, 0, pdu);
    net.run(SECOND);
    assert_eq!(net.closed("a", key), None);
    assert_eq!(net.count("a", "end-of-another"), 1);
}

#[test]
fn nothing_is_believed_of_whom_did_not_enroll() {
    let mut net = Net::new(6);
    net.bootstrap("a");
    net.add("b");
    net.wires.clear();
    net.lossy_wire("b", "a", 100);
    let mut liar = Liar {
        source: 9,
        next_id: 1,
    };
    liar.say(&mut net, 1, links(&[link("b", "a", 1)]));
    liar.say(&mut net, 1, Message::object(Opcode::Release, "", ""));
    liar.say(
        &mut net,
        1,
        Message::object(Opcode::Read, "keepalive", "/mgmt/keepalive"),
    );
    assert_eq!(net.count("a", "cdap-state"), 3);
    // Connected, but not enrolled.
    let connect = Message {
        invoke_id: 2,
        abstract_syntax: 73,
        version: 1,
        ..Message::connect(Party::of("b"), Party::of("a"))
    };
    net.inject(0, 1, pdu_of(&connect, 1));
    liar.say(&mut net, 1, links(&[link("b", "a", 1)]));
    let told = Message::object(Opcode::Write, "policy", "/mgmt/routing/policy");
    liar.say(&mut net, 1, told.with_value(Value::Text("static".into())));
    assert_eq!(net.count("a", "entries-of-no-neighbour"), 1);
    assert_eq!(net.count("a", "policy-of-no-enroller"), 1);
    assert!(net.names("a", "/routing/links").is_empty());
    // With a destination in the PCI, the message is dropped earlier.
    let data = a_data(&flow_request("b"), 9, 1);
    inject_a_data(&mut net, &data, 9);
    assert_eq!(net.count("a", "a-data-of-no-neighbour"), 0);
    net.inject(0, 1, pdu_of(&data, 9));
    assert_eq!(net.count("a", "a-data-of-no-neighbour"), 1);
}

#[test]
fn what_is_duplicated_below_is_taken_once() {
    let mut net = Net::new(7);
    net.bootstrap("a");
    net.add("b");
    let wire = net.wire("b", "a");
    let mut first = net.take_sent(wire, 0);
    assert_eq!(first.len(), 1, "M_CONNECT");
    net.run(Duration::from_millis(300));
    assert_eq!(net.names("a", "/neighbours"), ["b"]);
    net.inject(wire, 1, first.remove(0));
    for pdu in net.take_sent(wire, 0) {
        net.inject(wire, 1, pdu);
    }
    net.run(100 * SECOND);
    assert_eq!(net.names("a", "/neighbours"), ["b"]);
    assert_eq!(net.names("b", "/neighbours"), ["a"]);
    assert_eq!(net.count("a", "connects-duplicated"), 1);
    let downs = net.told("a", |event| {
        matches!(event, Event::NeighbourDown { .. }).then_some(())
    });
    assert!(downs.is_empty());
}
