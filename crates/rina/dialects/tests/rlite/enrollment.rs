//! Enrollment of an IPCP, and its failures.

use carina_cdap::{Message, Opcode, Rules, Value};
use carina_ipcp::{Command, DifConfig, Event, PolicySpec};

use crate::rlite::net::{MS, Net, SECOND, config, line, pdu_of, props, with_policy};

const PCI: usize = 28;

/// The management message in a PDU; `None` for other PDUs.
pub(super) fn cdap(pdu: &[u8]) -> Option<Message> {
    let is_management = pdu.get(1) == Some(&0x40);
    is_management.then(|| Rules::RLITE.decode(&pdu[PCI..]).expect("a message"))
}

pub(super) fn is_up(net: &Net, at: &str, other: &str) -> bool {
    let changes = net.told(at, |event| match event {
        Event::NeighbourUp { name, .. } if name == other => Some(true),
        Event::NeighbourDown { name, .. } if name == other => Some(false),
        _ => None,
    });
    changes.last().copied().unwrap_or_default()
}

#[test]
fn a_newcomer_is_given_an_address_and_both_are_neighbours() {
    let net = line(1, &["a", "b"]);
    assert_eq!(net.address("a"), 1);
    let address = net.address("b");
    assert!((2..4).contains(&address), "{address}");
    assert!(is_up(&net, "a", "b") && is_up(&net, "b", "a"));
    let told = net.told("b", |event| match event {
        Event::Enrolled { config, .. } => Some(config.max_pdu_lifetime_ms),
        _ => None,
    });
    assert_eq!(told, [4_000]);
}

#[test]
fn both_begin_an_n1_flow_at_once() {
    // Two members connect to each other, or a member and an enrollee connect to each other.
    let mut net = line(2, &["a", "b", "c"]);
    net.wire("c", "a");
    net.add("d");
    net.wire("a", "d");
    net.run(20 * SECOND);
    assert!(is_up(&net, "a", "c") && is_up(&net, "c", "a"));
    assert!(
        is_up(&net, "a", "d") && is_up(&net, "d", "a"),
        "{:?}",
        net.events
    );
    assert_ne!(net.address("d"), 0);
}

/// Two configurations: rlite's defaults with shorter addresses, and with a checksum in each PDU.
fn tiny_and_checked() -> [DifConfig; 2] {
    let mut tiny = config();
    tiny.widths.address = 2;
    tiny.widths.seq = 2;
    tiny.widths.ctrl_seq = 2;
    let inet = PolicySpec {
        name: "inet".into(),
        ..PolicySpec::default()
    };
    [tiny, with_policy("pci-checksum", inet)]
}

#[test]
fn configured_layout_holds_from_the_first_message() {
    for given in tiny_and_checked() {
        let mut net = Net::new(3);
        for name in ["a", "b"] {
            net.add_with(name, given.clone());
        }
        net.order("a", Command::Bootstrap);
        net.wire("b", "a");
        net.run(3 * SECOND);
        assert!(is_up(&net, "a", "b") && is_up(&net, "b", "a"));
        assert_ne!(net.address("b"), 0);
    }
}

#[test]
fn a_wrong_layout_or_checksum_is_named_in_the_failure() {
    for given in tiny_and_checked() {
        let mut net = Net::new(3);
        net.bootstrap("a");
        net.add_with("b", given);
        net.wire("b", "a");
        net.run(9 * SECOND);
        let failures = net.failures("b");
        assert_eq!(failures.len(), 1, "{failures:?}");
        let words = ["no answer to M_CONNECT", "`widths`", "`pci-checksum`"];
        let has_all = words.iter().all(|word| failures[0].contains(word));
        assert!(has_all, "{failures:?}");
        assert_eq!(net.address("b"), 0);
        // The failure may pass: the enroller may not run yet.
        assert_eq!(net.refusals("b"), Vec::<String>::new());
    }
}

#[test]
fn an_ipcp_that_is_not_a_member_enrolls_no_other() {
    let mut net = Net::new(4);
    net.add("a");
    net.add("b");
    net.wire("b", "a");
    net.run(3 * SECOND);
    assert_eq!((net.address("a"), net.address("b")), (0, 0));
    assert_eq!(net.refusals("b"), Vec::<String>::new());
    // As soon as one of them creates the DIF, the other joins by itself.
    net.order("a", Command::Bootstrap);
    net.run(40 * SECOND);
    assert!(net.address("b") > 1, "{:?}", net.failures("b"));
}

#[test]
fn another_name_than_that_of_the_n1_flow_is_refused() {
    let mut net = Net::new(5);
    net.bootstrap("a");
    net.add("b");
    let wire = net.wire("b", "a");
    let mut told = props("somebody else", false);
    told.dif = "below".into();
    let refused = net.wires[wire].ends[1].1;
    net.order(
        "a",
        Command::N1Down {
            n1: refused,
            reason: "renamed".into(),
        },
    );
    net.order(
        "a",
        Command::N1Up {
            n1: refused,
            props: told,
        },
    );
    let n1 = net.wires[wire].ends[0].1;
    net.order("b", Command::Enroll { n1 });
    net.run(SECOND);
    assert_eq!(net.address("b"), 0);
    let failures = net.failures("b");
    let text = failures.last().expect("a failure");
    assert!(
        text.contains("the N-1 flow is from \"somebody else\""),
        "{text}"
    );
    // The flow is returned: the next one may be for the IPCP that is there.
    let given_back = |(at, event): &(String, Event)| {
        at == "a" && matches!(event, Event::DropN1 { n1, .. } if *n1 == refused)
    };
    assert!(net.events.iter().any(given_back));
    // An IP address is not an application name: it means that the N-1 DIF did not know the name.
    let wire = net.wire("b", "a");
    let n1 = net.wires[wire].ends[1].1;
    let reason = "renamed".to_string();
    net.order("a", Command::N1Down { n1, reason });
    let props = crate::rlite::net::props("10.10.10.4", false);
    net.order("a", Command::N1Up { n1, props });
    let n1 = net.wires[wire].ends[0].1;
    net.order("b", Command::Enroll { n1 });
    net.run(SECOND);
    assert_ne!(net.address("b"), 0);
}

#[test]
fn addresses_may_be_configured_instead_of_assigned() {
    let fixed = PolicySpec {
        name: "static".into(),
        ..PolicySpec::default()
    };
    let mut net = Net::new(6);
    net.add_with("a", with_policy("address-assignment", fixed));
    net.order("a", Command::Bootstrap);
    net.add("b");
    net.wire("b", "a");
    net.run(3 * SECOND);
    // The enrollee claims address 1, as rlite does, and the first member has that address.
    let failures = net.failures("b");
    assert!(
        failures[0].contains("address 1 is not free"),
        "{failures:?}"
    );
    // Each member has the address configured for it, also when it returns.
    let with_own = |address: &str| {
        let params = [("address".to_string(), address.to_string())];
        let fixed = PolicySpec {
            name: "static".into(),
            params: params.into(),
        };
        with_policy("address-assignment", fixed)
    };
    let mut net = Net::new(6);
    net.add_with("a", with_own("40"));
    net.order("a", Command::Bootstrap);
    for (name, address) in [("b", "7"), ("c", "1")] {
        net.add_with(name, with_own(address));
        net.wire(name, "a");
    }
    net.run(30 * SECOND);
    let addresses = |net: &mut Net| ["a", "b", "c"].map(|name| net.address(name));
    assert_eq!(addresses(&mut net), [40, 7, 1]);
    let wire = net.wires.len() - 2;
    net.order("b", Command::Leave);
    net.run(2 * SECOND);
    let n1 = net.wires[wire].ends[0].1;
    net.end_wire(wire);
    net.mend_wire(wire);
    net.order("b", Command::Enroll { n1 });
    net.run(60 * SECOND);
    assert_eq!(addresses(&mut net), [40, 7, 1]);
}

#[test]
fn three_members_object_to_an_address_that_is_taken() {
    let mut net = line(7, &["a", "b", "c", "d", "e"]);
    net.run(60 * SECOND);
    let mut addresses: Vec<u64> = net.members.keys().map(|name| net.address(name)).collect();
    addresses.sort_unstable();
    let count = addresses.len();
    addresses.dedup();
    assert_eq!(addresses.len(), count, "{addresses:?}");
    assert!(!addresses.contains(&0));
}

#[test]
fn an_objection_makes_the_enroller_draw_again() {
    let mut net = line(8, &["a", "b"]);
    net.add("c");
    let wire = net.lossy_wire("c", "a", 0);
    net.run(10 * MS);
    // a proposes an address to b and waits; b objects that the address is in use.
    let to_b = net.take_sent(0, 1);
    let mut wanted = to_b.iter().filter_map(|pdu| cdap(pdu));
    let wanted = wanted.rfind(|candidate| candidate.class == "aareq");
    let wanted = wanted.expect("the address is asked about");
    let mut objection = wanted.clone();
    objection.opcode = Opcode::Delete;
    objection.invoke_id = 99;
    net.inject(0, 1, pdu_of(&objection, net.address("b")));
    net.run(5 * SECOND);
    let Some(Value::Bytes(value)) = wanted.value else {
        panic!("a value")
    };
    let refused = u64::from(*value.last().expect("an address"));
    assert_eq!(net.count("a", "addresses-objected"), 1);
    assert_ne!(net.address("c"), refused);
    assert_ne!(net.address("c"), 0);
    assert!(!net.wires[wire].is_cut);
}

#[test]
fn two_with_one_address_part_by_their_names() {
    // Two DIFs of the same name grow into one: both first members have address 1.
    let mut net = Net::new(9);
    net.bootstrap("a");
    net.bootstrap("b");
    net.add("m");
    net.wire("m", "a");
    net.run(3 * SECOND);
    net.wire("m", "b");
    net.run(60 * SECOND);
    let addresses = ["a", "b", "m"].map(|name| net.address(name));
    assert_eq!(addresses[1], 1, "the higher name keeps it: {addresses:?}");
    assert_ne!(addresses[0], 1);
    assert_ne!(addresses[0], addresses[2]);
}

#[test]
fn a_member_that_says_nothing_is_pruned_after_three_keepalives() {
    let mut net = line(10, &["a", "b"]);
    net.vanish("b");
    net.run(76 * SECOND);
    assert!(is_up(&net, "a", "b"));
    net.run(4 * SECOND);
    assert!(!is_up(&net, "a", "b"));
    let drops = net.told("a", |event| match event {
        Event::DropN1 { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert!(drops[0].contains("keep-alives"), "{drops:?}");
    assert!(net.names("a", "/routing/table").is_empty());
}

#[test]
fn a_member_that_leaves_is_released_and_may_return() {
    let mut net = line(11, &["a", "b", "c"]);
    net.order("c", Command::Register { name: "app".into() });
    net.run(SECOND);
    assert_eq!(net.names("a", "/directory"), ["app"]);
    net.order("c", Command::Leave);
    net.run(2 * SECOND);
    assert!(!is_up(&net, "b", "c"));
    assert_eq!(net.address("c"), 0);
    assert!(net.names("a", "/directory").is_empty());
    assert!(net.names("a", "/routing/table").len() == 1);
    net.wire("c", "b");
    let n1 = net.wires[2].ends[0].1;
    net.order("c", Command::Enroll { n1 });
    net.run(5 * SECOND);
    assert!(is_up(&net, "b", "c"));
    assert_eq!(net.names("a", "/directory"), ["app"]);
    assert_eq!(net.names("a", "/routing/table").len(), 2);
}

#[test]
fn a_member_that_starts_anew_on_a_living_n1_flow_enrolls_again() {
    let mut net = line(12, &["a", "b"]);
    let address = net.address("b");
    net.vanish("b");
    net.add("b");
    let n1 = net.wires[0].ends[0].1;
    let props = props("a", true);
    net.order("b", Command::N1Up { n1, props });
    net.run(3 * SECOND);
    assert_eq!(net.address("b"), address, "it is known under its name");
    assert!(is_up(&net, "a", "b") && is_up(&net, "b", "a"));
    net.run(60 * SECOND);
    assert!(is_up(&net, "a", "b") && is_up(&net, "b", "a"));
}

#[test]
fn a_further_n1_flow_of_a_neighbour_does_not_enroll_it_again() {
    let mut net = line(13, &["a", "b"]);
    let second = net.wire("b", "a");
    net.run(SECOND);
    let messages: Vec<String> = net
        .take_sent(second, 0)
        .iter()
        .filter_map(|pdu| cdap(pdu))
        .map(|message| format!("{:?} {}", message.opcode, message.name))
        .collect();
    assert_eq!(messages, ["Connect ", "Start /mgmt/lowerflow"]);
    let neighbours = net.objects("b", "/neighbours/a");
    let shown = format!("{neighbours:?}");
    assert!(shown.contains("\"below\", \"below\""), "{shown}");
    // The first flow ends, and the neighbour stays.
    net.end_wire(0);
    net.run(SECOND);
    assert_eq!(net.names("a", "/routing/table").len(), 1);
    assert_eq!(net.names("b", "/neighbours"), ["a"]);
}

#[test]
fn enrollment_succeeds_over_a_flow_that_loses_a_tenth() {
    for seed in 0..12 {
        let mut net = Net::new(100 + seed);
        net.bootstrap("a");
        net.add("b");
        net.lossy_wire("b", "a", 10);
        net.run(180 * SECOND);
        assert_ne!(net.address("b"), 0, "seed {seed}: {:?}", net.failures("b"));
        assert!(
            is_up(&net, "b", "a") && is_up(&net, "a", "b"),
            "seed {seed}"
        );
    }
}

#[test]
fn two_enrollers_at_once_give_one_address() {
    let mut net = line(15, &["a", "b"]);
    net.add("c");
    net.wire("c", "a");
    net.wire("c", "b");
    net.run(10 * SECOND);
    let addresses = net.told("c", |event| match event {
        Event::Enrolled { address, .. } => Some(address.0),
        _ => None,
    });
    assert_eq!(addresses, [net.address("c")]);
    for other in ["a", "b"] {
        assert!(
            is_up(&net, "c", other) && is_up(&net, other, "c"),
            "{other}"
        );
    }
    assert_eq!(net.count("c", "addresses-changed"), 0);
}

#[test]
fn an_order_to_enroll_does_not_disturb_an_attempt() {
    let mut net = Net::new(16);
    net.bootstrap("a");
    net.add("b");
    let wire = net.wire("b", "a");
    let n1 = net.wires[wire].ends[0].1;
    for _ in 0..20 {
        net.order("b", Command::Enroll { n1 });
        net.run(MS);
    }
    net.run(SECOND);
    let connects = net.take_sent(wire, 0);
    let connects = connects.iter().filter_map(|pdu| cdap(pdu));
    let connects = connects.filter(|message| message.opcode == Opcode::Connect);
    assert_eq!(connects.count(), 1);
    assert!(is_up(&net, "b", "a"));
}
