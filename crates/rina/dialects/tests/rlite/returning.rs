//! Members that return as rlite's do: an IPCP that has enrolled once sends `/mgmt/lowerflow`, and
//! never `/mgmt/enrollment` again.

use carina_cdap::{Message, Opcode};
use carina_ipcp::{Command, Event};

use crate::rlite::by_hand::says;
use crate::rlite::crossing::Peer;
use crate::rlite::enrollment::is_up;
use crate::rlite::hostile::{directory, member, members, registration};
use crate::rlite::net::{Net, SECOND, line};

/// M_START for the N-1 flow of a member.
fn lower_flow() -> Message {
    says(Opcode::Start, "lowerflow", "/mgmt/lowerflow", 3)
}

/// An entry message, with an invoke id of the connection.
fn numbered(mut message: Message, invoke_id: i32) -> Message {
    (message.version, message.invoke_id) = (1, invoke_id);
    message
}

/// Lets `r` connect to `to` from an address, as a member that returns. Returns the peer and the
/// messages that it received.
fn return_of(net: &mut Net, to: &str, address: u64) -> (Peer, Vec<Message>) {
    let mut peer = Peer::asking(net, "r", to);
    peer.source = address;
    let connect = peer.connect(to);
    peer.says(net, &connect);
    peer.says(net, &lower_flow());
    let heard = peer.messages(net);
    (peer, heard)
}

/// The address of a member, as another member knows it.
fn address_at(net: &mut Net, at: &str, name: &str) -> String {
    let objects = net.objects(at, &format!("/members/{name}"));
    let address = objects[0].fields.iter().find(|(name, _)| name == "address");
    format!("{:?}", address.expect("an address").1)
}

#[test]
fn member_that_was_lost_returns_without_enrolling() {
    let mut net = line(61, &["a", "m", "r"]);
    let address = net.address("r");
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    net.vanish("r");
    net.run(90 * SECOND);
    assert!(!is_up(&net, "m", "r"));
    let (peer, heard) = return_of(&mut net, "m", address);
    let starts: Vec<_> = heard
        .iter()
        .filter(|candidate| candidate.opcode == Opcode::StartR)
        .collect();
    assert_eq!(starts.len(), 1, "{heard:?}");
    assert_eq!(
        (starts[0].result, starts[0].name.as_str()),
        (0, "/mgmt/lowerflow")
    );
    assert!(is_up(&net, "m", "r"));
    // The returned member gets everything, and its entries are accepted, also by others.
    let classes: Vec<&str> = heard.iter().map(|message| message.class.as_str()).collect();
    for class in ["neigh_entries", "lfdb_entries", "dft_entries", "aa_entries"] {
        assert!(classes.contains(&class), "{class}: {classes:?}");
    }
    peer.says(&mut net, &numbered(members(&[member("r", address)]), 4));
    peer.says(
        &mut net,
        &numbered(directory(&[registration("far", "r", 1)]), 5),
    );
    net.run(SECOND);
    for at in ["m", "a"] {
        assert_eq!(net.names(at, "/directory"), ["app", "far"], "{at}");
        let known = address_at(&mut net, at, "r");
        assert_eq!(known, format!("Uint({address})"), "{at}");
    }
}

#[test]
fn first_member_that_begins_anew_takes_old_members_in() {
    let mut net = Net::new(62);
    net.bootstrap("c");
    let (_, heard) = return_of(&mut net, "c", 3);
    let answers: Vec<(Opcode, i32)> = heard
        .iter()
        .map(|message| (message.opcode, message.result))
        .collect();
    assert!(answers.contains(&(Opcode::StartR, 0)), "{answers:?}");
    assert!(is_up(&net, "c", "r"));
    assert_eq!(address_at(&mut net, "c", "r"), "Uint(3)");
    assert_eq!(net.count("c", "members-returned"), 1);
    assert_eq!(net.address("c"), 1);
}

#[test]
fn returning_member_with_a_taken_address_parts_by_names() {
    // The address of `c` is 1, and so is that of `r`, which has the higher name.
    let mut net = Net::new(63);
    net.bootstrap("c");
    let (peer, _) = return_of(&mut net, "c", 1);
    assert!(is_up(&net, "c", "r"));
    peer.says(&mut net, &numbered(members(&[member("r", 1)]), 4));
    net.run(11 * SECOND);
    assert_ne!(net.address("c"), 1);
    assert_eq!(address_at(&mut net, "c", "r"), "Uint(1)");
    let lost = net.told("c", |event| {
        matches!(event, Event::NeighbourDown { .. }).then_some(())
    });
    assert!(lost.is_empty());
}
