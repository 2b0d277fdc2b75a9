//! Normal DIFs within one system: members over the loopback shim and over each other.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use carina_api::control::{DifCreate, DifRole, IpcpInfo, MemberState};
use carina_api::ipc::Mode;
use carina_api::{AppName, FlowSpec};
use support::pair::Pair;
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

/// There is a way to a member.
fn routed(house: &House, in_dif: &str, member: &str) {
    let path = format!("/members/{member}");
    eventually(&format!("{member} can be reached"), || {
        let objects = house.control().rib(Some(in_dif), None, &path, 0).unwrap();
        objects[0].fields["is_reachable"] == true
    });
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

/// One more DIF over `over`, with a member on each side.
fn layer(pair: &Pair, name: &str, over: &str) {
    let host = request(name, DifRole::Create, over, &format!("{name}.host"));
    pair.host.control().create_dif(&host).unwrap();
    enrolled(&pair.host, &format!("{name}.host"));
    let guest = request(name, DifRole::Join, over, &format!("{name}.guest"));
    pair.guest.control().create_dif(&guest).unwrap();
    enrolled(&pair.guest, &format!("{name}.guest"));
}

/// Bytes without a pattern that a mistake could hide in.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// A flow from the guest to the host in one DIF; the first is the host's.
fn flow_in(pair: &Pair, in_dif: &str, name: &str, spec: FlowSpec) -> (Conn, Taken, Taken) {
    let server = pair.host.conn();
    server.register(name, Some(in_dif)).unwrap();
    known(&pair.guest, in_dif, name);
    routed(&pair.guest, in_dif, &format!("{in_dif}.host"));
    let caller = pair.guest.conn();
    caller.ask_with(name, Some(in_dif), spec, Mode::Ring);
    let asked = server.flow_request();
    server.accept(asked.request, Mode::Ring);
    let theirs = server.flow();
    (server, theirs, caller.flow())
}

#[test]
fn eight_difs_upon_each_other_carry_a_file_unharmed() {
    let pair = Pair::new("stack", "");
    let file = content(4 << 20);
    let mut below = "hv.x".to_owned();
    for depth in 1..=8 {
        let name = format!("d{depth}");
        layer(&pair, &name, &below);
        let app = format!("sink{depth}");
        let (_server, theirs, mine) = flow_in(&pair, &name, &app, FlowSpec::reliable());
        carry(&file, mine, theirs, depth);
        below = name;
    }
}

fn carry(file: &[u8], mut mine: Taken, mut theirs: Taken, depth: u32) {
    std::thread::scope(|scope| {
        let sent = file.to_vec();
        scope.spawn(move || {
            for sdu in sent.chunks(1400) {
                mine.send_patiently(sdu);
            }
            mine.close();
        });
        let mut got = Vec::with_capacity(file.len());
        while let Some(sdu) = theirs.recv_whole() {
            got.extend_from_slice(&sdu);
        }
        assert_eq!(got.len(), file.len(), "depth {depth}");
        assert!(got == file, "depth {depth}");
    });
}
