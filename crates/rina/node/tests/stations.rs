//! Members of a normal DIF over an Ethernet, which has one flow per pair of stations.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::control::{DifCreate, LinkState, MemberState, N1State};
use serde_json::json;

use crate::room::Room;
use crate::support::members::member;
use crate::support::*;

fn house(room: &Room, side: &'static str) -> House {
    room.run(move || {
        let toml = format!(
            "node.name = \"{side}\"\n[[ipcp]]\nname = \"e\"\ntype = \"eth\"\ndif = \"lan\"\n\
             interface = \"v{side}\"\ntimeout_ms = 200\n"
        );
        House::new(&format!("stations-{side}"), &toml)
    })
}

fn make(house: &House, role: &str, over: &[&str], ipcp: &str) {
    let mut create = json!({"name": "net", "role": role, "over": over, "ipcp": ipcp});
    if role == "create" {
        // The longest PDU fits the Ethernet, although the first member is not on it.
        create["config"] = json!({"max_pdu": 1400});
    }
    let create: DifCreate = serde_json::from_value(create).unwrap();
    house.control().create_dif(&create).unwrap();
    eventually("it is enrolled", || {
        member(house, ipcp).state == MemberState::Enrolled
    });
}

#[test]
fn a_station_that_has_asked_is_not_asked_again_and_again() {
    let (Some(left), Some(right)) = (Room::new(), Room::new()) else {
        return;
    };
    left.join("va", &right, "vb", 1500);
    let (mut a, mut b) = (house(&left, "a"), house(&right, "b"));
    for house in [&a, &b] {
        eventually("the link is up", || {
            let ipcps = house.control().ipcps().unwrap();
            ipcps.iter().all(|ipcp| ipcp.state == LinkState::Up)
        });
    }
    make(&a, "create", &["local"], "first");
    // This member also wants an N-1 flow over the Ethernet, and finds no member there yet.
    make(&a, "join", &["local", "lan"], "middle");
    make(&b, "join", &["lan"], "last");
    eventually_or("the wish for another flow is given up", || {
        let info = member(&a, "middle");
        let lan: Vec<_> = info.n1.iter().filter(|n1| n1.dif == dif("lan")).collect();
        match lan.as_slice() {
            [only] if only.state == N1State::Up && only.neighbour.is_some() => Ok(()),
            _ => Err(format!("{lan:?}")),
        }
    });
    // The threads of the nodes live in the namespaces, so the nodes stop first.
    drop(a.node.take());
    drop(b.node.take());
}
