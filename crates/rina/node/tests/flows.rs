//! Many simultaneous flows through one DIF, and their cost.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Instant;

use carina_api::control::{DifCreate, DifRole, MemberState};
use carina_api::ipc::Mode;
use carina_api::{FlowSpec, LocalName};

use crate::support::pair::Pair;
use crate::support::*;

/// Limits high enough for many flows.
const LIMITS: &str = "[limits]\nflows_per_uid = 100000\nring_bytes_per_uid = 1099511627776\n";

fn make(house: &House, role: DifRole, name: &str) {
    let create = DifCreate {
        name: dif("net"),
        role,
        over: vec![dif("hv.x")],
        ipcp: Some(LocalName::new(name).unwrap()),
        via: None,
        auth: None,
        dialect: Default::default(),
        config: None,
    };
    house.control().create_dif(&create).unwrap();
    eventually("it is enrolled", || {
        let ipcps = house.control().ipcps().unwrap();
        let found = ipcps.into_iter().find(|ipcp| ipcp.name.as_str() == name);
        found.and_then(|ipcp| ipcp.member).unwrap().state == MemberState::Enrolled
    });
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Opens `count` flows, uses the first, the last and some between, and closes all.
fn many(count: usize) {
    let pair = Pair::new("many", LIMITS);
    make(&pair.host, DifRole::Create, "host");
    make(&pair.guest, DifRole::Join, "guest");
    let server = pair.host.conn();
    server.register("sink", Some("net")).unwrap();
    eventually("the name can be reached", || {
        let read = |path| pair.guest.control().rib(Some("net"), None, path, 0);
        let routed = read("/members/host").is_ok_and(|o| o[0].fields["is_reachable"] == true);
        routed && read("/directory/sink").is_ok()
    });
    let caller = pair.guest.conn();
    let (before, start) = (resident(), Instant::now());
    let mut flows = Vec::with_capacity(count);
    for _ in 0..count {
        caller.ask_with("sink", Some("net"), FlowSpec::reliable(), Mode::Socket);
        server.accept(server.flow_request().request, Mode::Socket);
        flows.push((server.flow(), caller.flow()));
    }
    let elapsed = start.elapsed();
    println!(
        "{count} flows at once: {:.0} allocations/s, {} bytes of both nodes and applications a flow",
        count as f64 / elapsed.as_secs_f64(),
        (resident().saturating_sub(before)) / count as u64
    );
    let info = pair.host.control().node().unwrap();
    // Includes the N-1 flow.
    assert_eq!(info.flows as usize, count + 1);
    for n in (0..count).step_by(count.div_ceil(50)).chain([count - 1]) {
        let (theirs, mine) = &mut flows[n];
        let sdu = format!("flow {n}");
        mine.send(sdu.as_bytes());
        assert_eq!(theirs.recv().unwrap(), sdu.as_bytes());
        theirs.send(b"heard");
        assert_eq!(mine.recv().unwrap(), b"heard", "flow {n}");
    }
    drop(flows);
    eventually("all flows are gone", || {
        let left = |house: &House| house.control().node().unwrap().flows;
        left(&pair.host) == 1 && left(&pair.guest) == 1
    });
}

#[test]
fn three_hundred_flows_at_once() {
    many(300);
}

#[test]
#[ignore = "takes a minute, and 16,000 open files"]
fn four_thousand_flows_at_once() {
    let limit = carina_sys::raise_nofile_limit().unwrap();
    assert!(limit >= 17_000, "{limit} open files are allowed");
    many(4000);
}

#[test]
fn received_sdus_wait_for_a_reader_while_other_flows_follow() {
    let pair = Pair::new("late", LIMITS);
    make(&pair.host, DifRole::Create, "host");
    make(&pair.guest, DifRole::Join, "guest");
    let server = pair.host.conn();
    server.register("source", Some("net")).unwrap();
    eventually("the name can be reached", || {
        let read = |path| pair.guest.control().rib(Some("net"), None, path, 0);
        let routed = read("/members/host").is_ok_and(|o| o[0].fields["is_reachable"] == true);
        routed && read("/directory/source").is_ok()
    });
    let open = || {
        let caller = pair.guest.conn();
        caller.ask_with("source", Some("net"), FlowSpec::reliable(), Mode::Ring);
        server.accept(server.flow_request().request, Mode::Ring);
        (server.flow(), caller.flow())
    };
    let (mut theirs, mut mine) = open();
    // More records than the reader's ring has room for: the rest waits at its member.
    for n in 0..SMALL_SDUS {
        theirs.send_patiently(&n.to_be_bytes());
    }
    theirs.close();
    // Enough flows for the port-id of the first one to be reused.
    for _ in 0..100 {
        let (theirs, mine) = open();
        mine.close();
        theirs.close();
    }
    for n in 0..SMALL_SDUS {
        let sdu = mine.recv();
        assert_eq!(sdu, Some(n.to_be_bytes().to_vec()), "of {SMALL_SDUS}");
    }
    assert_eq!(mine.recv(), None);
}

/// Number of 4-byte SDUs whose bytes fit in a caller's ring, but whose records do not.
const SMALL_SDUS: u32 = 8_000;
