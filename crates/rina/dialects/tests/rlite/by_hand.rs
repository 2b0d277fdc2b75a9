//! Enrollers whose messages the test writes itself, and how an enrollee reacts to them.

use carina_cdap::{Message, Opcode, Party, Value};
use carina_ipcp::{Command, DifConfig, N1Port};
use carina_wire::Bytes;
use carina_wire::dif::{Dialect, Widths};

use crate::rlite::net::{Net, SECOND, config, pdu_in, props};

/// M_CONNECT_R of the enroller `name` for enrollee `b`.
pub(super) fn connected(name: &str) -> Message {
    let connect = Message {
        invoke_id: 2,
        abstract_syntax: 73,
        ..Message::connect(Party::of(name), Party::of("b"))
    };
    let mut connected = connect.answer();
    std::mem::swap(&mut connected.src, &mut connected.dst);
    connected
}

/// Another message of the enroller.
pub(super) fn says(opcode: Opcode, class: &str, name: &str, id: i32) -> Message {
    Message {
        invoke_id: id,
        version: 1,
        ..Message::object(opcode, class, name)
    }
}

/// M_START_R, with these bytes as enrollment value.
pub(super) fn started(value: &[u8]) -> Message {
    let start = says(Opcode::StartR, "enrollment", "/mgmt/enrollment", 3);
    start.with_value(Value::Bytes(value.to_vec()))
}

/// M_STOP of the enroller.
fn stop() -> Message {
    let stop = says(Opcode::Stop, "enrollment", "/mgmt/enrollment", 4);
    stop.with_value(Value::Bytes(vec![0x18, 1]))
}

const N1: N1Port = N1Port(1);

/// The net with enrollee `b`, after an enroller played by the test has sent these messages.
fn told_by_hand(messages: &[Message]) -> Net {
    let mut net = Net::new(14);
    net.add("b");
    begin(&mut net, N1);
    tell(&mut net, N1, Widths::RLITE, messages);
    net
}

/// Gives enrollee `b` an N-1 flow to the enroller, and lets it connect.
fn begin(net: &mut Net, n1: N1Port) {
    let props = props("a", true);
    net.order("b", Command::N1Up { n1, props });
}

fn tell(net: &mut Net, n1: N1Port, widths: Widths, messages: &[Message]) {
    for message in messages {
        let now = net.now;
        let pdu = Bytes::from(pdu_in(widths, message, 1));
        net.member("b").on_pdu(now, n1, pdu);
        net.pump("b");
    }
}

#[test]
fn what_an_enroller_says_that_never_fits_is_a_refusal_for_good() {
    // Addresses of 2 bytes; and an address that is too large for the DIF.
    let narrow = started(&[0x08, 5, 0x22, 2, 0x10, 2]);
    let wide = started(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    for (messages, words) in [
        (vec![connected("b")], "called \"b\" like this one"),
        (vec![connected("a"), narrow], "field address has 2 bytes"),
        (
            vec![connected("a"), wide],
            "outside the addresses of this DIF",
        ),
    ] {
        let net = told_by_hand(&messages);
        let refusals = net.refusals("b");
        assert_eq!(refusals, net.failures("b"));
        assert!(refusals.concat().contains(words), "{refusals:?}");
        assert_eq!(net.address("b"), 0);
    }
    // rlite has one result code for all refusals of an enroller.
    let refused = started(&[]).with_error(-1, "no");
    let net = told_by_hand(&[connected("a"), refused]);
    assert!(net.failures("b").concat().contains("refused"));
    assert_eq!(net.refusals("b"), Vec::<String>::new());
}

#[test]
fn policies_that_are_not_known_here_do_not_stop_an_enrollment() {
    let policy = says(Opcode::Write, "policy", "/mgmt/dft/policy", 2)
        .with_value(Value::Text("centralized-fault-tolerant".into()));
    let parameter = says(Opcode::Write, "replicas", "/mgmt/dft/params", 3)
        .with_value(Value::Text("a,c".into()));
    let messages = [
        connected("a"),
        started(&[0x08, 5]),
        policy,
        parameter,
        stop(),
    ];
    let net = told_by_hand(&messages);
    assert_eq!(net.address("b"), 5);
    let notices = net.notices("b");
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(
        notices[0].contains("centralized-fault-tolerant"),
        "{notices:?}"
    );
    assert_eq!(DifConfig::of_dialect(Dialect::Rlite).keepalive_ms, 20_000);
}

/// Widths of rlite's `normal-tiny`.
const TINY: Widths = Widths {
    address: 1,
    cep: 1,
    qos: 1,
    seq: 2,
    ctrl_seq: 2,
    length: 2,
    ..Widths::RLITE
};

/// M_START_R with address 5, and these widths as constants.
fn announcing(widths: Widths) -> Message {
    let mut constants = Vec::new();
    for (tag, width) in [
        (0x10, widths.address),
        (0x20, widths.cep),
        (0x28, widths.qos),
        (0x30, widths.seq),
        (0x38, widths.length),
    ] {
        constants.extend([tag, width]);
    }
    constants.extend([0x88, 0x01, widths.ctrl_seq]);
    let length = u8::try_from(constants.len()).expect("short");
    started(&[&[0x08, 5, 0x22, length], &constants[..]].concat())
}

/// The net with enrollee `b`, which is configured with small widths.
fn tiny() -> Net {
    let mut net = Net::new(15);
    let mut small = config();
    small.widths = TINY.into();
    net.add_with("b", small);
    begin(&mut net, N1);
    net
}

#[test]
fn enroller_of_small_widths_may_announce_those_of_the_dialect() {
    for announced in [Widths::RLITE, TINY] {
        let mut net = tiny();
        let messages = [connected("a"), announcing(announced), stop()];
        tell(&mut net, N1, TINY, &messages);
        assert_eq!(net.address("b"), 5, "{:?}", net.failures("b"));
        let config = net.told("b", |event| match event {
            carina_ipcp::Event::Enrolled { config, .. } => Some(config.widths),
            _ => None,
        });
        assert_eq!(config, [TINY.into()]);
    }
}

#[test]
fn other_widths_than_the_configured_are_still_refused() {
    let other = Widths { cep: 2, ..TINY };
    let mut net = tiny();
    tell(&mut net, N1, TINY, &[connected("a"), announcing(other)]);
    let refusals = net.refusals("b").concat();
    assert!(refusals.contains("field CEP-id has 2 bytes"), "{refusals}");
    // With the dialect's widths configured, a difference is an error.
    let net = told_by_hand(&[connected("a"), announcing(TINY)]);
    let refusals = net.refusals("b").concat();
    assert!(refusals.contains("field address has 1 bytes"), "{refusals}");
}

#[test]
fn enroller_that_is_silent_later_does_not_hide_why_it_failed() {
    let mut net = told_by_hand(&[connected("a"), announcing(TINY)]);
    // As the binder does: the N-1 flow is returned, and another one comes up.
    let reason = "enrollment failed".to_string();
    net.order("b", Command::N1Down { n1: N1, reason });
    begin(&mut net, N1Port(2));
    net.run(10 * SECOND);
    let refusals = net.refusals("b");
    assert_eq!(refusals.len(), 2, "{:?}", net.failures("b"));
    let words = ["field address has 1 bytes", "have had no answer"];
    let has_all = words.iter().all(|word| refusals[1].contains(word));
    assert!(has_all, "{refusals:?}");
}
