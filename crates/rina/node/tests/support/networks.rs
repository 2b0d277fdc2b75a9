//! Nodes whose IPCP `e` is a shim over a network.

use std::time::Instant;

use carina_api::FlowSpec;
use carina_api::control::LinkState;
use carina_api::ipc::{Mode, Reply};
use carina_engine::counters::{self, Value};
use carina_netdev::{Interface, Layout, PacketSocket};
use carina_wire::ether::Mac;

use super::*;
use crate::room::Room;

/// Waits until IPCP `e` has this link state.
pub(crate) fn wait_for(house: &House, state: LinkState) {
    eventually("the state of the link", || {
        let ipcps = house.control().ipcps().unwrap();
        let found = ipcps.iter().find(|ipcp| ipcp.name.as_str() == "e");
        found.is_some_and(|ipcp| ipcp.state == state)
    });
}

/// Requests an unreliable flow, and accepts it when its first SDU arrives.
pub(crate) fn begin(from: &House, server: &Conn, name: &str) -> (Taken, Taken) {
    let mut mine = asked(from, name).unwrap();
    mine.send(b"first");
    let request = server.flow_request();
    server.accept(request.request, Mode::Ring);
    let mut theirs = server.flow();
    assert_eq!(theirs.recv().unwrap(), b"first");
    (mine, theirs)
}

/// Requests an unreliable flow until an answer arrives: if the machine does not run the test for
/// long enough, a request times out.
pub(crate) fn asked(from: &House, name: &str) -> Result<Taken, String> {
    let mut refusal = String::new();
    for _ in 0..100 {
        let caller = from.conn();
        caller.ask_with(name, None, FlowSpec::unreliable(), Mode::Ring);
        match caller.hear() {
            Some((Reply::Flow(flow), fds)) => return Ok(Taken::new(flow, fds)),
            Some((Reply::Error(error), _)) => refusal = error.error.message,
            other => panic!("{other:?}"),
        }
        if !refusal.contains("answered for") {
            break;
        }
    }
    Err(refusal)
}

/// The sum of a counter over all apps of a node.
pub(crate) fn counted(house: &House, value: Value) -> u64 {
    let rows = counters::read(&house.dir().path().join("counters")).unwrap();
    rows.iter().map(|row| row.get(value)).sum()
}

/// An Ethernet station without a node.
pub(crate) struct Station {
    socket: PacketSocket,
    pub mac: Mac,
}

impl Station {
    pub(crate) fn new(room: &Room, name: &'static str) -> Station {
        room.run(move || {
            let interface = Interface::named(name).unwrap();
            let layout = Layout::for_mtu(interface.mtu);
            Station {
                socket: PacketSocket::open(&interface, layout, None).unwrap(),
                mac: Mac(interface.mac),
            }
        })
    }

    pub(crate) fn send(&mut self, to: Mac, ethertype: u16, payload: &[u8]) {
        let mut frame = to.0.to_vec();
        frame.extend_from_slice(&self.mac.0);
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(payload);
        self.socket
            .reserve(frame.len())
            .unwrap()
            .copy_from_slice(&frame);
        self.socket.commit(frame.len());
        assert!(self.socket.flush().unwrap());
    }

    /// The payload of the next frame of this type.
    pub(crate) fn receive(&mut self, ethertype: u16) -> Vec<u8> {
        let frame = self.receive_within(ethertype, PATIENCE);
        frame.unwrap_or_else(|| panic!("no frame for {PATIENCE:?}"))
    }

    /// Like [`Station::receive`], but `None` when no such frame arrives in time.
    pub(crate) fn receive_within(&mut self, ethertype: u16, time: Duration) -> Option<Vec<u8>> {
        let patience = Instant::now() + time;
        loop {
            if let Some(received) = self.socket.receive() {
                let frame = received.frame.to_vec();
                self.socket.release();
                if frame[12..14] == ethertype.to_be_bytes() {
                    return Some(frame[14..].to_vec());
                }
            } else if Instant::now() >= patience {
                return None;
            } else {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}
