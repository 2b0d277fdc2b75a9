//! Nodes whose IPCP `e` is a shim over a network.

use carina_api::FlowSpec;
use carina_api::control::LinkState;
use carina_api::ipc::{Mode, Reply};
use carina_engine::counters::{self, Value};

use super::*;

/// Waits for the state of IPCP `e`.
pub fn wait_for(house: &House, state: LinkState) {
    eventually("the state of the link", || {
        let ipcps = house.control().ipcps().unwrap();
        let found = ipcps.iter().find(|ipcp| ipcp.name.as_str() == "e");
        found.is_some_and(|ipcp| ipcp.state == state)
    });
}

/// Asks for an unreliable flow and accepts it when its first SDU comes.
pub fn begin(from: &House, server: &Conn, name: &str) -> (Taken, Taken) {
    let mut mine = asked(from, name).unwrap();
    mine.send(b"first");
    let request = server.flow_request();
    server.accept(request.request, Mode::Ring);
    let mut theirs = server.flow();
    assert_eq!(theirs.recv().unwrap(), b"first");
    (mine, theirs)
}

/// Asks for an unreliable flow until an answer comes: a request may be given up because the whole
/// machine stood still for longer than an answer may take.
pub fn asked(from: &House, name: &str) -> Result<Taken, String> {
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

/// What all apps of a node have counted.
pub fn counted(house: &House, value: Value) -> u64 {
    let rows = counters::read(&house.dir().path().join("counters")).unwrap();
    rows.iter().map(|row| row.get(value)).sum()
}
