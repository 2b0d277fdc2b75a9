//! Management PDUs to neighbours and members, and management channels before and after enrollment.

use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, Target, TransferEvent};
use carina_ipcp::security::{Reject, SduProtection};
use carina_ipcp::{Catalogue, DataPath, DropReason, QosCube};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;
use carina_wire::dif::{Address, CepId};

use crate::data_transfer::net::{Net, config, cubes, props, sdu};

fn open_channel(member: &mut DataPath<Bytes>, now: Instant, channel: u32, cube: &QosCube) -> CepId {
    let open = Open {
        owner: Owner::Channel(channel),
        cube: cube.clone(),
        msg_boundaries: true,
        pinned: Some(N1Port(0)),
    };
    member.open(now, open).unwrap()
}

/// A member of a DIF with wide fields, and an IPCP that does not know the DIF's configuration yet.
fn half_enrolled() -> Net {
    let mut config = config();
    config.widths.address = 4;
    config.widths.cep = 1;
    config.widths.seq = 8;
    let mut net = Net::new(1, &config);
    net.members.push(DataPath::new(Catalogue::standard(), 5));
    net.wires.insert((0, 0), (1, 0));
    net.wires.insert((1, 0), (0, 0));
    for member in &mut net.members {
        member.add_n1(N1Port(0), &props());
    }
    net
}

fn messages(net: &mut Net) -> Vec<(usize, u32, Vec<u8>)> {
    let events = std::mem::take(&mut net.events);
    events
        .into_iter()
        .filter_map(|(member, event)| match event {
            TransferEvent::Channel { channel, message } => Some((member, channel, message)),
            _ => None,
        })
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
fn neighbours_exchange_messages_before_widths_and_addresses() {
    let mut net = half_enrolled();
    let now = net.now;
    net.members[1].send_management(now, Target::N1(N1Port(0)), b"let me in");
    net.run_until_quiet();
    let expected = TransferEvent::Management {
        n1: N1Port(0),
        src: Address::NONE,
        message: b"let me in".to_vec(),
    };
    assert_eq!(net.events, [(0, expected)]);
    net.events.clear();
    net.members[0].send_management(now, Target::N1(N1Port(0)), b"come");
    net.run_until_quiet();
    let expected = TransferEvent::Management {
        n1: N1Port(0),
        src: Address(1),
        message: b"come".to_vec(),
    };
    assert_eq!(net.events, [(1, expected)]);

    let reliable = &cubes()[2];
    let ceps: Vec<_> = net
        .members
        .iter_mut()
        .map(|member| open_channel(member, now, 6, reliable))
        .collect();
    net.members[0].connect(now, ceps[0], Address::NONE, ceps[1]);
    net.members[1].connect(now, ceps[1], Address(1), ceps[0]);
    net.events.clear();
    let lengths = [0, 5, 1400, 60_000, 1 << 20];
    for len in lengths {
        net.members[0].write_channel(now, 6, sdu(len, len));
        net.members[1].write_channel(now, 6, sdu(len + 1, len));
        net.run_until_quiet();
    }
    net.run_until(now + Duration::from_secs(3));
    let messages = messages(&mut net);
    for (member, add) in [(1, 0), (0, 1)] {
        let got: Vec<_> = messages.iter().filter(|(to, ..)| *to == member).collect();
        assert_eq!(got.len(), lengths.len());
        for (len, (_, channel, message)) in lengths.into_iter().zip(got) {
            assert_eq!(*channel, 6);
            assert!(*message == sdu(len + add, len), "{len} bytes");
        }
    }
    // After enrollment the channel continues unchanged.
    let mut config = config();
    config.widths.address = 4;
    config.widths.cep = 1;
    config.widths.seq = 8;
    let now = net.now;
    net.members[1].configure(now, &config).unwrap();
    net.members[1].set_address(Address(70_000));
    net.members[1].write_channel(now, 6, b"thanks".to_vec());
    net.run_until_quiet();
    assert_eq!(
        net.events,
        [(
            0,
            TransferEvent::Channel {
                channel: 6,
                message: b"thanks".to_vec()
            }
        )]
    );
    for member in &net.members {
        assert_eq!(
            member.counters().dropped_total(),
            0,
            "{:?}",
            member.counters()
        );
    }
}

#[test]
fn a_channel_survives_loss() {
    let mut net = half_enrolled();
    let now = net.now;
    let reliable = &cubes()[2];
    let ceps: Vec<_> = net
        .members
        .iter_mut()
        .map(|member| open_channel(member, now, 1, reliable))
        .collect();
    net.members[0].connect(now, ceps[0], Address::NONE, ceps[1]);
    net.members[1].connect(now, ceps[1], Address::NONE, ceps[0]);
    net.loses = Some(Box::new(|_, _, number| number % 5 == 3));
    for number in 0..40 {
        net.members[0].write_channel(now, 1, sdu(number, number * 300));
    }
    net.run_until(now + Duration::from_secs(4));
    let got: Vec<_> = messages(&mut net)
        .into_iter()
        .map(|(.., message)| message)
        .collect();
    let sent: Vec<_> = (0..40).map(|number| sdu(number, number * 300)).collect();
    assert!(got == sent, "{} of {}", got.len(), sent.len());
}

#[test]
fn messages_to_members_are_routed_and_own_ones_come_back() {
    let mut net = Net::new(3, &config());
    net.wire((0, 0), (1, 0));
    net.wire((1, 1), (2, 0));
    net.route(0, &[(3, &[2], &[])]);
    net.route(1, &[(3, &[3], &[])]);
    let now = net.now;
    let max = net.members[0].management_max();
    net.members[0].send_management(now, Target::Address(Address(3)), &sdu(1, max));
    net.members[0].send_management(now, Target::Address(Address(1)), b"self");
    net.members[0].send_management(now, Target::Address(Address(9)), b"nobody");
    net.run_until_quiet();
    assert_eq!(net.dropped(0, DropReason::UnknownDestination), 1);
    let management: Vec<_> = net
        .events
        .iter()
        .map(|(member, event)| match event {
            TransferEvent::Management { src, message, .. } => (*member, *src, message.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(management, [(0, Address(1), 4), (2, Address(1), max)]);
    // The PCI, and the checksum of PDUs between neighbours.
    assert_eq!(max, 1500 - 15 - 4);
}

#[test]
fn damage_between_neighbours_is_counted_and_changes_nothing() {
    let mut net = half_enrolled();
    let sent = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = sent.clone();
    net.loses = Some(Box::new(move |_, bytes, _| {
        kept.borrow_mut().clone_from(bytes);
        true
    }));
    let now = net.now;
    net.members[1].send_management(now, Target::N1(N1Port(0)), b"let me in");
    net.run_until_quiet();
    let whole = sent.borrow().clone();
    assert_eq!(whole.len(), 15 + 9 + 4);
    let give = |net: &mut Net, bytes: Vec<u8>| {
        net.members[0].on_pdu(now, N1Port(0), Bytes::from(bytes));
        net.run_until_quiet();
    };
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            give(&mut net, damaged);
        }
        give(&mut net, whole[..at].to_vec());
    }
    // A PDU of a peer that does not use the checksum: its length is right, but its last bytes are
    // part of the message.
    let mut bare = whole[..24].to_vec();
    bare[6] -= 4;
    give(&mut net, bare);
    let believed = |net: &Net| {
        let is_message = |(_, event): &&(usize, TransferEvent)| {
            matches!(event, TransferEvent::Management { .. })
        };
        net.events.iter().filter(is_message).count()
    };
    assert_eq!(believed(&net), 0);
    let damaged = 9 * whole.len() as u64 + 1;
    assert_eq!(net.members[0].counters().dropped_total(), damaged);
    assert!(net.dropped(0, DropReason::NeighbourChecksum) > 100);
    // The medium may pad a short frame.
    give(&mut net, [whole, vec![0; 18]].concat());
    assert_eq!(believed(&net), 1);
    assert_eq!(net.members[0].counters().dropped_total(), damaged);
}

#[test]
fn management_without_destination_is_between_neighbours_only() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.loses = Some(Box::new(|_, bytes, _| {
        // A damaged hop limit must not bypass the checksum.
        bytes[3] = 64;
        false
    }));
    let now = net.now;
    net.members[0].send_management(now, Target::N1(N1Port(0)), b"let me in");
    net.run_until_quiet();
    assert_eq!(net.dropped(1, DropReason::UnknownDestination), 1);
    assert!(net.events.is_empty(), "{:?}", net.events);
}

#[test]
fn only_neighbour_pdus_may_have_hop_limit_0() {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    net.flow(0, 1, 1, &cubes()[0]);
    net.loses = Some(Box::new(|_, bytes, _| {
        bytes[3] = 0;
        false
    }));
    net.write(0, 1, b"forged");
    net.run_until_quiet();
    assert_eq!(net.dropped(1, DropReason::HopLimit), 1);
    assert!(net.take_read(1, 1).is_empty());
}

/// SDU protection for the test: adds a counter and a check byte.
struct Toy {
    out: u64,
    seen: u64,
    key: u8,
}

impl Toy {
    fn new(key: u8) -> Box<Toy> {
        Box::new(Toy {
            out: 0,
            seen: 0,
            key,
        })
    }

    fn check(&self, bytes: &[u8]) -> u8 {
        bytes
            .iter()
            .fold(self.key, |sum, byte| sum.wrapping_mul(31) ^ byte)
    }
}

impl SduProtection for Toy {
    fn overhead(&self) -> usize {
        9
    }

    fn protect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        self.out += 1;
        pdu.extend_from_slice(&self.out.to_be_bytes());
        pdu.push(self.check(pdu));
        Ok(())
    }

    fn unprotect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        let check = pdu.pop().ok_or(Reject::Short)?;
        if check != self.check(pdu) {
            return Err(Reject::Forged);
        }
        let at = pdu.len().checked_sub(8).ok_or(Reject::Short)?;
        let number = pdu[at..]
            .iter()
            .fold(0, |n, byte| n << 8 | u64::from(*byte));
        if number <= self.seen {
            return Err(Reject::Replayed);
        }
        self.seen = number;
        pdu.truncate(at);
        Ok(())
    }
}

#[test]
fn protection_covers_all_but_management_between_neighbours() {
    let mut config = config();
    config.max_pdu = 1400;
    let mut net = Net::new(2, &config);
    net.wire((0, 0), (1, 0));
    for member in &mut net.members {
        member.set_sdu_protection(N1Port(0), Some(Toy::new(9)));
        assert_eq!(member.carries(N1Port(0)), Ok(()));
    }
    net.flow(0, 1, 3, &cubes()[2]);
    for number in 0..100 {
        net.write(0, 3, &sdu(number, 2000));
    }
    net.run_until(net.now + Duration::from_secs(1));
    assert_eq!(net.take_read(1, 3).len(), 100);
    let now = net.now;
    net.members[0].send_management(now, Target::N1(N1Port(0)), b"bare");
    net.members[0].send_management(now, Target::Address(Address(2)), b"sealed");
    net.run_until_quiet();
    assert_eq!(net.events.len(), 2);
    for member in &net.members {
        assert_eq!(
            member.counters().dropped_total(),
            0,
            "{:?}",
            member.counters()
        );
    }

    // A replayed PDU, a changed one, and one under another key.
    let copies = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = copies.clone();
    net.loses = Some(Box::new(move |_, bytes, _| {
        kept.borrow_mut().push(bytes.clone());
        false
    }));
    net.events.clear();
    net.members[0].send_management(now, Target::Address(Address(2)), b"once");
    net.run_until_quiet();
    let mut copy = copies.borrow()[0].clone();
    net.members[1].on_pdu(now, N1Port(0), Bytes::from(copy.clone()));
    net.members[1].on_pdu(now, N1Port(0), Bytes::from(copy.clone()));
    copy[9] ^= 1;
    net.members[1].on_pdu(now, N1Port(0), Bytes::from(copy));
    net.run_until_quiet();
    assert_eq!(net.dropped(1, DropReason::ProtectionReplayed), 2);
    assert_eq!(net.dropped(1, DropReason::ProtectionForged), 1);
    let notices: Vec<_> = net
        .events
        .iter()
        .filter(|(_, event)| matches!(event, TransferEvent::Notice { .. }))
        .collect();
    assert_eq!(notices.len(), 2, "{notices:?}");
}
