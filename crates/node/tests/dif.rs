//! Normal DIFs within one system: members over the loopback shim and over each other.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use carina_api::control::{DifCreate, DifRole, IpcpInfo, MemberState};
use carina_api::ipc::Mode;
use carina_api::{AppName, FlowSpec};
use support::*;

fn request(name: &str, role: DifRole, over: &str, ipcp: &str) -> DifCreate {
    DifCreate {
        name: dif(name),
        role,
        over: vec![dif(over)],
        ipcp: Some(ipcp.parse().unwrap()),
        via: None,
        auth: None,
        config: None,
    }
}

fn member(house: &House, name: &str) -> IpcpInfo {
    let ipcps = house.control().ipcps().unwrap();
    ipcps
        .into_iter()
        .find(|ipcp| ipcp.name.as_str() == name)
        .unwrap()
}

fn enrolled(house: &House, name: &str) {
    eventually_or(&format!("{name} is enrolled"), || {
        let info = member(house, name).member.unwrap();
        match info.state {
            MemberState::Enrolled => Ok(()),
            _ => Err(format!("{info:?}")),
        }
    });
}

/// A DIF of two members in one system.
fn pair(house: &House, name: &str, over: &str) -> [String; 2] {
    let names = [1, 2].map(|n| format!("{name}.m{n}"));
    let control = house.control();
    let first = request(name, DifRole::Create, over, &names[0]);
    control.create_dif(&first).unwrap();
    enrolled(house, &names[0]);
    let mut second = request(name, DifRole::Join, over, &names[1]);
    second.via = Some(AppName::new(names[0].as_str()).unwrap());
    control.create_dif(&second).unwrap();
    enrolled(house, &names[1]);
    names
}

/// The DIF's directory has the name.
fn known(house: &House, in_dif: &str, name: &str) {
    eventually(&format!("{name} is known in {in_dif}"), || {
        let difs = house.control().difs().unwrap();
        let found = difs.iter().find(|found| found.name == dif(in_dif));
        found.is_some_and(|found| found.names.contains(&app(name)))
    });
}

#[test]
fn two_members_over_loopback_become_neighbours_and_carry_a_flow() {
    let house = House::new("dif-pair", "");
    let names = pair(&house, "net", "local");
    let other = AppName::new(names[1].as_str()).unwrap();
    eventually("they are neighbours", || {
        member(&house, &names[0]).member.unwrap().neighbours == [other.clone()]
    });
    let server = house.conn();
    server.register("echo", Some("net")).unwrap();
    known(&house, "net", "echo");
    let caller = house.conn();
    caller.ask_with("echo", Some("net"), FlowSpec::reliable(), Mode::Ring);
    let asked = server.flow_request();
    assert_eq!(asked.dif, dif("net"));
    server.accept(asked.request, Mode::Ring);
    let (mut theirs, mut mine) = (server.flow(), caller.flow());
    for n in 0..200u8 {
        mine.send(&[n; 100]);
        assert_eq!(theirs.recv().unwrap(), [n; 100]);
        theirs.send(&[n; 1]);
        assert_eq!(mine.recv().unwrap(), [n; 1]);
    }
    mine.send(b"last words");
    mine.close();
    assert_eq!(theirs.recv().unwrap(), b"last words");
    assert_eq!(theirs.recv(), None);
}
