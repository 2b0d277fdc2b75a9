//! Replays captures of two rlite systems; Carina takes the place of either.
//!
//! Every management PDU of the replaced side must be sent byte for byte and in order, except:
//!
//! - If the enroller has other neighbours, rlite waits for objections to an address for
//!   `nack-wait`. Without other neighbours rlite waits too, but Carina does not. Only times differ.
//! - The enroller sends its lower flow at once, and again in the second slice for the new
//!   neighbour; in between, the enrollee's first slices arrive. Their relative order in the capture
//!   is accidental, so only the order within each side is compared.
//! - CEP-ids start at 0 in rlite and at 1 in Carina; port-ids are equal. In A-DATA about flows, 1
//!   is subtracted from Carina's CEP-ids before they are compared.

use std::collections::VecDeque;

use carina_cdap::{Message, Opcode, Rules, Value};
use carina_ipcp::{Command, Event, N1Port};
use carina_time::Duration;
use carina_wire::{Bytes, FlowSpec};

use crate::rlite::net::{MS, Net, SECOND, config, props};

const PCI: usize = 28;

/// Sender and bytes of a captured PDU.
type Line = (char, Vec<u8>);

fn hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn capture(text: &str) -> Vec<Line> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.rsplit(' ');
            let bytes = hex(words.next().expect("bytes"));
            let who = words.next().and_then(|word| word.chars().next());
            (who.expect("a sender"), bytes)
        })
        .collect()
}

/// The CDAP message of a management PDU.
fn cdap(pdu: &[u8]) -> Message {
    Rules::RLITE.decode(&pdu[PCI..]).expect("a message")
}

fn describe(pdu: &[u8]) -> String {
    let message = cdap(pdu);
    format!("{:?} {} {}", message.opcode, message.class, message.name)
}

/// A member that runs against a capture.
struct Replay {
    net: Net,
    own: String,
    n1: N1Port,
    /// PDUs that the member has sent and that have not been compared.
    sent: VecDeque<Vec<u8>>,
}

impl Replay {
    fn new(own: &str, dif: &str, seed: u64) -> Replay {
        let mut net = Net::new(1);
        net.add_seeded(own, dif, config(), seed);
        Replay {
            net,
            own: own.to_string(),
            n1: N1Port(1),
            sent: VecDeque::new(),
        }
    }

    fn order(&mut self, command: Command) {
        let now = self.net.now;
        let own = self.own.clone();
        self.net.member(&own).handle(now, command);
        self.collect();
    }

    fn up(&mut self, remote: &str, lower_dif: &str, is_initiator: bool) {
        let mut props = props(remote, is_initiator);
        props.dif = lower_dif.into();
        self.order(Command::N1Up { n1: self.n1, props });
    }

    fn receive(&mut self, pdu: &[u8]) {
        let (now, n1) = (self.net.now, self.n1);
        let own = self.own.clone();
        let pdu = Bytes::from(pdu.to_vec());
        self.net.member(&own).on_pdu(now, n1, pdu);
        self.collect();
    }

    fn pass(&mut self, time: Duration) {
        let until = self.net.now + time;
        let own = self.own.clone();
        loop {
            let due = self.net.member(&own).poll_timeout();
            let Some(at) = due.filter(|at| *at <= until) else {
                break;
            };
            self.net.now = self.net.now.max(at);
            let now = self.net.now;
            self.net.member(&own).handle_timeout(now);
            self.collect();
        }
        self.net.now = until;
    }

    fn collect(&mut self) {
        let now = self.net.now;
        let member = self.net.members.get_mut(&self.own).expect("the member");
        member.end_of_burst(now);
        while let Some(n1) = member.poll_n1() {
            let pdu = member.take_transmit(now, n1).expect("a PDU");
            self.sent.push_back(pdu.as_slice().to_vec());
        }
        while let Some(event) = member.poll_event() {
            self.net.events.push((self.own.clone(), event));
        }
        member.release_burst();
    }

    /// Checks that the next PDU sent equals `pdu`.
    fn expect(&mut self, line: usize, pdu: &[u8]) {
        let own = self.sent.pop_front();
        let own = own.unwrap_or_else(|| panic!("line {line}: not sent: {}", describe(pdu)));
        if pdu != own {
            panic!(
                "line {line}: {} was to be sent, and {} was\n{:?}\n{:?}",
                describe(pdu),
                describe(&own),
                cdap(pdu),
                cdap(&own),
            );
        }
    }
}

/// True when a message is sent only because time has passed.
fn is_periodic(pdu: &[u8]) -> bool {
    cdap(pdu).name == "/mgmt/keepalive" && cdap(pdu).opcode == Opcode::Read
}

/// The part of the capture up to the end of the enrollment and its synchronization.
fn enrollment(lines: Vec<Line>) -> Vec<Line> {
    let ends = |(_, pdu): &Line| cdap(pdu).class == "a_data" || is_periodic(pdu);
    lines.into_iter().take_while(|line| !ends(line)).collect()
}

const UDP4: &str = include_str!("udp4.txt");
const ETH: &str = include_str!("eth.txt");

#[test]
fn as_enrollee_this_machine_sends_what_rlite_sent() {
    for (text, own, other, dif, lower) in [
        (UDP4, "xnorm.IPCP", "ynorm.IPCP", "n.DIF", "udp.DIF"),
        (ETH, "red.n", "green.n", "n.DIF", "edif"),
    ] {
        let lines = enrollment(capture(text));
        let mut replay = Replay::new(own, dif, 1);
        replay.up(other, lower, true);
        let (mut received, mut compared) = (0, 0);
        for (at, (who, pdu)) in lines.iter().enumerate() {
            match who {
                'S' => {
                    replay.receive(pdu);
                    received += 1;
                }
                _ => {
                    replay.expect(at + 1, pdu);
                    compared += 1;
                }
            }
        }
        assert!(replay.sent.is_empty(), "{:?}", replay.sent);
        assert_eq!((received, compared), (lines.len() - 6, 6), "{own}");
        assert_eq!(replay.net.address(own), 3);
        assert_eq!(replay.net.count(own, "cdap-state"), 0);
        assert!(
            replay.net.notices(own).is_empty(),
            "{:?}",
            replay.net.notices(own)
        );
    }
}

/// A seed with which the first address drawn is 3, as in the capture.
fn seed_for_three() -> u64 {
    let draws_three = |seed: &u64| {
        let mut replay = enroller("ynorm.IPCP", *seed);
        replay.up("xnorm.IPCP", "udp.DIF", false);
        let first: Vec<Line> = capture(UDP4).into_iter().take(3).collect();
        for (_, pdu) in first.iter().filter(|(who, _)| *who == 'I') {
            replay.receive(pdu);
        }
        let lines = capture(UDP4);
        replay.sent.get(1).is_some_and(|pdu| *pdu == lines[3].1)
    };
    (0..64).find(draws_three).expect("one of four addresses")
}

fn enroller(own: &str, seed: u64) -> Replay {
    let mut replay = Replay::new(own, "n.DIF", seed);
    replay.order(Command::Bootstrap);
    replay
}

#[test]
fn as_enroller_this_machine_sends_what_rlite_sent() {
    let seed = seed_for_three();
    for (text, own, other, lower, app) in [
        (UDP4, "ynorm.IPCP", "xnorm.IPCP", "udp.DIF", "rpinst1"),
        (ETH, "green.n", "red.n", "edif", "rpinst1"),
    ] {
        let lines = enrollment(capture(text));
        let mut replay = enroller(own, seed);
        let name = app.to_string();
        replay.order(Command::Register { name });
        replay.up(other, lower, false);
        let mut compared = 0;
        for (at, (who, pdu)) in lines.iter().enumerate() {
            if *who == 'I' {
                replay.receive(pdu);
                continue;
            }
            if cdap(pdu).class == "nack-wait" && text == ETH {
                // The captured member was configured with another time.
                let own = replay.sent.pop_front().expect("the same with this time");
                let message = cdap(&own);
                assert_eq!(message.value, Some(Value::Text("1000ms".into())));
                assert_eq!(cdap(pdu).value, Some(Value::Text("4000ms".into())));
                assert_eq!(message.invoke_id, cdap(pdu).invoke_id);
            } else {
                replay.expect(at + 1, pdu);
            }
            compared += 1;
        }
        assert!(replay.sent.is_empty(), "{:?}", replay.sent);
        assert!(compared >= 12, "{compared}");
        let ups = replay.net.told(own, |event| match event {
            Event::NeighbourUp { name, address, .. } => Some((name.clone(), address.0)),
            _ => None,
        });
        assert_eq!(ups, [(other.to_string(), 3)]);
    }
}

/// Subtracts 1 from the CEP-ids of a flow object in A-DATA, since Carina's start at 1.
fn with_their_ceps(pdu: &[u8], takes: &[u32]) -> Vec<u8> {
    // {1 qosid, 2 src_cep, 3 dst_cep} as the only field 7 of the request.
    let start = [0x3a, 0x06, 0x08, 0x00, 0x10];
    let mut out = pdu.to_vec();
    let at = out.windows(5).position(|part| part == start).expect("ids") + 5;
    for (index, take) in takes.iter().enumerate() {
        out[at + 2 * index] -= u8::try_from(*take).expect("small");
    }
    out
}

/// rlite's caller requests a flow; Carina offers it, accepts it, and receives the end.
#[test]
fn flows_that_rlite_asks_for_are_answered_as_rlite_answers() {
    let seed = seed_for_three();
    let lines = capture(UDP4);
    let mut replay = enroller("ynorm.IPCP", seed);
    let name = "rpinst1".to_string();
    replay.order(Command::Register { name });
    replay.up("xnorm.IPCP", "udp.DIF", false);
    let (mut answers, mut ends) = (0, 0);
    for (who, pdu) in &lines {
        let is_data = cdap(pdu).class == "a_data";
        if *who == 'I' {
            if !is_data && cdap(pdu).name == "/mgmt/keepalive" {
                break;
            }
            replay.receive(pdu);
            continue;
        }
        if !is_data {
            continue;
        }
        let inner = inner(pdu);
        if inner.opcode == Opcode::Delete {
            ends += 1;
            continue;
        }
        let offered = replay.net.told("ynorm.IPCP", |event| match event {
            Event::Incoming {
                flow, remote, spec, ..
            } => Some((*flow, remote.clone(), *spec)),
            _ => None,
        });
        let (flow, remote, spec) = offered.last().expect("an offer").clone();
        assert_eq!(remote, "rpcli1");
        let is_reliable = answers >= 2;
        assert_eq!(spec.max_sdu_gap == 0, is_reliable);
        assert_eq!(spec.in_order, is_reliable);
        assert!(spec.msg_boundaries);
        replay
            .sent
            .retain(|pdu| cdap_of(pdu).is_some_and(|cdap_of| cdap_of.class == "a_data"));
        let answer = Ok(());
        replay.order(Command::Respond { flow, answer });
        let sent = replay.sent.pop_back().expect("an answer");
        assert_eq!(with_their_ceps(&sent, &[0, 1]), *pdu, "answer {answers}");
        answers += 1;
    }
    assert_eq!((answers, ends), (4, 4));
    replay.pass(SECOND);
    let closed = replay.net.told("ynorm.IPCP", |event| match event {
        Event::Closed { is_graceful, .. } => Some(*is_graceful),
        _ => None,
    });
    // The caller ended the first two flows; the ends of the others came from this side and are not
    // replayed.
    assert_eq!(closed, [true, true]);
}

/// Carina requests flows as rlite did, and rlite's captured answers open them.
#[test]
fn flows_that_this_machine_asks_for_are_asked_as_rlite_asks() {
    let lines = capture(UDP4);
    let mut replay = Replay::new("xnorm.IPCP", "n.DIF", 1);
    replay.up("ynorm.IPCP", "udp.DIF", true);
    let best_effort = FlowSpec::unreliable();
    let mut specs = vec![
        best_effort,
        best_effort,
        FlowSpec::reliable(),
        FlowSpec::reliable(),
    ];
    specs.reverse();
    let mut keys = Vec::new();
    for (who, pdu) in &lines {
        let is_data = cdap(pdu).class == "a_data";
        if *who == 'S' {
            replay.receive(&if is_data && inner(pdu).opcode == Opcode::CreateR {
                pdu.clone()
            } else if is_data {
                // Ends of flows that this side still uses are skipped.
                continue;
            } else {
                pdu.clone()
            });
            continue;
        }
        if !is_data || inner(pdu).opcode == Opcode::Delete {
            continue;
        }
        let Some(spec) = specs.pop() else { break };
        // Routes are computed a moment after the last change.
        replay.pass(200 * MS);
        replay.sent.clear();
        let now = replay.net.now;
        let member = replay.net.member("xnorm.IPCP");
        let key = member.allocate(now, "rpcli1", "rpinst1", spec);
        keys.push(key.expect("a request"));
        replay.collect();
        let sent = replay.sent.pop_front().expect("a request");
        assert_eq!(with_their_ceps(&sent, &[1]), *pdu);
    }
    for key in &keys {
        assert_eq!(replay.net.allocated("xnorm.IPCP", *key), Some(Ok(())));
    }
    assert_eq!(keys.len(), 4);
    // The caller's ends of the first two flows; their numbers follow those of the four flows.
    replay.sent.clear();
    let deletes = lines.iter().filter(|(who, pdu)| {
        *who == 'I' && cdap(pdu).class == "a_data" && inner(pdu).opcode == Opcode::Delete
    });
    for ((_, pdu), key) in deletes.zip(&keys) {
        let reason = String::new();
        replay.order(Command::Deallocate { flow: *key, reason });
        replay.pass(MS);
        let sent: Vec<Vec<u8>> = replay.sent.drain(..).collect();
        let of_flows = sent.iter().filter(|pdu| cdap_of(pdu).is_some());
        let of_flows: Vec<&Vec<u8>> = of_flows.collect();
        assert_eq!(of_flows, [pdu]);
    }
}

fn cdap_of(pdu: &[u8]) -> Option<Message> {
    (pdu[1] == 0x40).then(|| cdap(pdu))
}

/// The message in A-DATA: field 3 of the value.
fn inner(pdu: &[u8]) -> Message {
    let outer = cdap(pdu);
    let value = outer.value.expect("a value");
    let bytes = value.as_bytes().expect("bytes");
    // Two addresses of one byte each, then the message after a tag and a length.
    let at = bytes.windows(2).position(|part| part == [0x08, 0x00]);
    Rules::RLITE
        .decode(&bytes[at.expect("its first field")..])
        .expect("a message")
}

/// Periodic messages: keep-alives after 20 s, all own entries after 30 s.
#[test]
fn what_time_brings_is_what_rlite_sent() {
    let lines = capture(UDP4);
    let mut replay = Replay::new("xnorm.IPCP", "n.DIF", 1);
    replay.up("ynorm.IPCP", "udp.DIF", true);
    for (who, pdu) in enrollment(lines.clone()) {
        if who == 'S' {
            replay.receive(&pdu);
        }
    }
    replay.sent.clear();
    replay.pass(20 * SECOND);
    let theirs: Vec<Message> = lines
        .iter()
        .filter(|(who, pdu)| *who == 'I' && cdap(pdu).class != "a_data")
        .map(|(_, pdu)| cdap(pdu))
        .skip(6)
        .collect();
    // M_READ, the answer to the peer's, then lower flow and record.
    assert_eq!(theirs.len(), 4);
    let sent = replay.sent.pop_front().expect("a keep-alive");
    assert_eq!(cdap(&sent), theirs[0]);
    let read = lines
        .iter()
        .find(|(who, pdu)| *who == 'S' && is_periodic(pdu));
    replay.receive(&read.expect("their keep-alive").1);
    let sent = replay.sent.pop_front().expect("an answer");
    assert_eq!(cdap(&sent), theirs[1]);
    replay.pass(10 * SECOND);
    let sent: Vec<Message> = replay.sent.drain(..).map(|pdu| cdap(&pdu)).collect();
    // rlite's timer started 1.3 s earlier, with its IPCP: its lower flow is 20 s old, Carina's 30
    // s.
    let mut link = theirs[2].clone();
    let Some(Value::Bytes(bytes)) = &mut link.value else {
        panic!("a lower flow")
    };
    assert_eq!(bytes.last(), Some(&20));
    *bytes.last_mut().expect("an age") = 30;
    assert_eq!(sent, [link, theirs[3].clone()]);
}
