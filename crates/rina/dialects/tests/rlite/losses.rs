//! What a member announces when it loses an N-1 flow, for neighbours that remove more than it has
//! lost.

use carina_cdap::{Message, Opcode};

use crate::rlite::enrollment::cdap;
use crate::rlite::hostile::{entries, member};
use crate::rlite::net::{MS, Net, SECOND, line, pdu_of};

/// The classes of the member records and lower flows that one end of a wire has sent.
fn announced(net: &mut Net, wire: usize, end: usize) -> Vec<String> {
    let sent = net.take_sent(wire, end);
    let messages = sent.iter().filter_map(|pdu| cdap(pdu));
    let creates = messages.filter(|message| message.opcode == Opcode::Create);
    creates.map(|message| message.class).collect()
}

#[test]
fn member_announces_itself_over_the_last_n1_flow() {
    let mut net = line(61, &["a", "b"]);
    let second = net.wire("b", "a");
    net.run(10 * SECOND);
    net.take_sent(second, 0);
    net.end_wire(0);
    net.run(10 * MS);
    let sent = std::mem::take(&mut net.wires[second].sent);
    for end in 0..2 {
        net.wires[second].sent.clone_from(&sent);
        let classes = announced(&mut net, second, end);
        assert_eq!(classes, ["neigh_entries", "lfdb_entries"], "end {end}");
    }
    // The other side may have noticed later.
    net.run(3 * SECOND);
    let classes = announced(&mut net, second, 0);
    assert_eq!(classes[..2], ["lfdb_entries", "neigh_entries"]);
}

/// M_DELETE or M_CREATE of the record of `name`.
fn record(net: &Net, opcode: Opcode, name: &str, id: i32) -> Message {
    let list = [member(name, net.address(name))];
    Message {
        invoke_id: id,
        version: 1,
        ..entries("neigh_entries", "/mgmt/neighbors/entries", opcode, &list)
    }
}

#[test]
fn member_whose_record_is_withdrawn_announces_itself_at_once() {
    let mut net = line(62, &["a", "b"]);
    net.run(2 * SECOND);
    net.take_sent(0, 0);
    let message = record(&net, Opcode::Delete, "b", 900);
    net.inject(0, 0, pdu_of(&message, 1));
    let classes = announced(&mut net, 0, 0);
    assert_eq!(classes, ["neigh_entries", "lfdb_entries"]);
    // Many withdrawals cause only a few announcements.
    for id in 901..950 {
        let message = record(&net, Opcode::Delete, "b", id);
        net.inject(0, 0, pdu_of(&message, 1));
    }
    assert!(announced(&mut net, 0, 0).is_empty());
}

#[test]
fn record_that_was_withdrawn_is_accepted_again() {
    let mut net = line(63, &["c", "a", "b"]);
    let source = net.address("a");
    let is_known = |net: &mut Net| net.names("b", "/members").contains(&"c".to_string());
    let say = |net: &mut Net, opcode, id| {
        let message = record(net, opcode, "c", id);
        net.inject(1, 0, pdu_of(&message, source));
    };
    say(&mut net, Opcode::Delete, 900);
    net.run(200 * MS);
    assert!(!is_known(&mut net));
    assert_eq!(net.names("b", "/routing/table"), [source.to_string()]);
    // A late copy of the withdrawn record is not accepted.
    say(&mut net, Opcode::Create, 901);
    assert!(!is_known(&mut net));
    net.run(SECOND);
    say(&mut net, Opcode::Create, 902);
    net.run(200 * MS);
    assert!(is_known(&mut net));
    assert_eq!(net.names("b", "/routing/table").len(), 2);
}
