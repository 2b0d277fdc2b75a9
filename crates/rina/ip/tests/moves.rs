//! A system that changes its attachment to the DIF.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use carina_api::control::{Client, DifExtend};

use crate::support::{Pair, System, eventually};

#[test]
fn tcp_connection_survives_a_change_of_attachment() {
    let Some(pair) = Pair::new() else { return };
    let [a, _b] = pair.members();
    let [in_a, in_b] = &pair.rooms;
    let listener = in_b.run(|| TcpListener::bind("10.9.1.2:0").unwrap());
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut copy = connection.try_clone().unwrap();
        let _ = std::io::copy(&mut connection, &mut copy);
    });
    let mut client = in_a.run(move || TcpStream::connect(address).unwrap());
    let limit = Some(Duration::from_secs(60));
    client.set_read_timeout(limit).unwrap();
    client.set_nodelay(true).unwrap();
    let mut echo = |n: u32| {
        client.write_all(&[n as u8; 3000]).unwrap();
        let mut answer = [0; 3000];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [n as u8; 3000]);
    };
    (0..10).for_each(&mut echo);
    let requested = a.counters().flows_requested;
    for system in &pair.systems {
        control(system).extend_dif("n", &over_second()).unwrap();
    }
    for system in &pair.systems {
        eventually("both are neighbours over the second Ethernet", || {
            neighbours_over(system, "lan2")
        });
    }
    (10..20).for_each(&mut echo);
    control(&pair.systems[0])
        .retract_dif("n", "lan", None)
        .unwrap();
    in_a.ip("link set va down");
    (20..200).for_each(&mut echo);
    // The flows move with their DIF: no new one is needed.
    assert_eq!(a.counters().flows_requested, requested);
    drop(client);
    server.join().unwrap();
}

fn control(system: &System) -> Client {
    Client::new(system.run().control_sock())
}

fn over_second() -> DifExtend {
    DifExtend {
        over: carina_api::DifName::new("lan2").unwrap(),
        via: None,
        ipcp: None,
    }
}

fn neighbours_over(system: &System, dif: &str) -> bool {
    let ipcps = control(system).ipcps().unwrap();
    let mut n1s = ipcps.iter().filter_map(|ipcp| ipcp.member.as_ref());
    n1s.any(|member| {
        let over =
            |n1: &carina_api::control::N1Info| n1.dif.as_str() == dif && n1.neighbour.is_some();
        member.n1.iter().any(over)
    })
}
