//! The port table: the IPCP and the user of each port-id on the data plane.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use carina_api::{IpcpId, PortId};
use carina_engine::AppId;
use carina_ipcp::N1Port;

/// Holds the manager's request to end a flow: the reason, which the peer is given.
pub type CloseRequest = Rc<RefCell<Option<String>>>;

/// Makes another worker end the flow with this port-id. The text is the reason for the peer.
pub type EndElsewhere = Rc<dyn Fn(PortId, String)>;

/// An entry of the port table: the flow that has a port-id.
#[derive(Clone)]
pub struct PortEntry {
    /// The IPCP that provides the flow; `None` for a relay between two users on this system.
    pub ipcp: Option<IpcpId>,
    /// Name of the flow, as counters show it.
    pub name: String,
    /// The user of the flow; `None` until an incoming flow is accepted.
    pub owner: Option<FlowOwner>,
}

/// The user of a flow, which the data plane tells when the flow must end.
#[derive(Clone)]
pub enum FlowOwner {
    /// An application: the app of the flow, and the place where that app looks for a request to
    /// close the flow.
    App(AppId, CloseRequest),
    /// A normal IPCP on this worker, which uses the flow as an N-1 flow.
    Ipcp(IpcpId, N1Port),
    /// A normal IPCP on another worker. To end the flow, call the function; the flow's app on this
    /// worker notices the end from the channel between the workers.
    Elsewhere(EndElsewhere),
    /// A normal IPCP on this worker that uses a flow of another worker as an N-1 flow, and the app
    /// between.
    Crossed(AppId, IpcpId, N1Port),
}

/// The port-ids that are in use on a worker, each with its flow. Clones share one table.
#[derive(Clone)]
pub struct PortTable(Rc<RefCell<Ports>>);

struct Ports {
    entries: HashMap<PortId, PortEntry>,
    /// The port-ids from which this worker chooses.
    range: Range<u32>,
    /// Where the next search for a free port-id starts.
    next: u32,
}

impl PortTable {
    /// Makes the table of worker `number`. Every worker chooses from its own range of port-ids.
    #[must_use]
    pub fn of_worker(number: usize) -> PortTable {
        let first = FIRST + number as u32 * PORTS_PER_WORKER;
        PortTable(Rc::new(RefCell::new(Ports {
            entries: HashMap::new(),
            range: first..first + PORTS_PER_WORKER,
            next: first,
        })))
    }

    /// Returns the number of the worker that has chosen a port-id; 0 for a port-id that the manager
    /// chose.
    #[must_use]
    pub fn worker_of(port: PortId) -> usize {
        (port.0.saturating_sub(FIRST) / PORTS_PER_WORKER) as usize
    }

    /// Returns the entry of a port-id; `None` if the port-id is free.
    #[must_use]
    pub fn get(&self, port: PortId) -> Option<PortEntry> {
        self.0.borrow().entries.get(&port).cloned()
    }

    /// Adds a flow to the table, with a port-id that the manager has chosen.
    pub fn insert(&self, port: PortId, entry: PortEntry) {
        self.0.borrow_mut().entries.insert(port, entry);
    }

    /// Frees a port-id; its flow has ended.
    pub fn remove(&self, port: PortId) {
        self.0.borrow_mut().entries.remove(&port);
    }

    /// Frees the port-id of a flow that came from another worker through this app, unless another
    /// flow has the port-id by now.
    pub(crate) fn remove_crossed(&self, port: PortId, app: AppId) {
        let mut ports = self.0.borrow_mut();
        let owner = ports
            .entries
            .get(&port)
            .and_then(|entry| entry.owner.as_ref());
        if matches!(owner, Some(FlowOwner::Crossed(through, ..)) if *through == app) {
            ports.entries.remove(&port);
        }
    }

    /// Adds a flow that a peer requests through `ipcp`. Chooses a port-id that has been free for
    /// long, because a late command of the manager for the port-id's last flow must not affect the
    /// new flow. The port-ids from 2^31 to 2^31 + 2^30 belong to the data plane.
    #[must_use]
    pub fn add_incoming(&self, ipcp: IpcpId, name: String) -> PortId {
        let mut ports = self.0.borrow_mut();
        let (range, from) = (ports.range.clone(), ports.next);
        let is_free = |port: &u32| !ports.entries.contains_key(&PortId(*port));
        // There are far fewer flows than port-ids, so the search ends after a few steps.
        let all = (from..range.end).chain(range.clone());
        let port = all.into_iter().find(is_free).unwrap_or(from);
        let is_last = port + 1 == range.end;
        ports.next = if is_last { range.start } else { port + 1 };
        let entry = PortEntry {
            ipcp: Some(ipcp),
            name,
            owner: None,
        };
        ports.entries.insert(PortId(port), entry);
        PortId(port)
    }
}

/// Largest number of threads of one data plane.
pub const WORKERS_MAX: usize = 64;

/// The lowest port-id that the data plane chooses.
const FIRST: u32 = 0x8000_0000;
/// Number of port-ids from which each worker chooses.
const PORTS_PER_WORKER: u32 = 0x4000_0000 / WORKERS_MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_port_is_not_the_next_of_any_ipcp() {
        let ports = PortTable::of_worker(0);
        let mut seen = Vec::new();
        for ipcp in [1, 2, 1, 3, 3, 1] {
            let port = ports.add_incoming(IpcpId(ipcp), String::new());
            assert!(!seen.contains(&port), "{port} again");
            seen.push(port);
            ports.remove(port);
        }
    }

    #[test]
    fn every_worker_chooses_ports_of_its_own() {
        let mut seen = Vec::new();
        for number in [0, 1, WORKERS_MAX - 1] {
            let ports = PortTable::of_worker(number);
            for _ in 0..3 {
                let port = ports.add_incoming(IpcpId(1), String::new());
                assert_eq!(PortTable::worker_of(port), number);
                assert!(port.0 >> 30 == 2 && !seen.contains(&port), "{port}");
                seen.push(port);
            }
        }
        assert_eq!(PortTable::worker_of(PortId(7)), 0);
    }
}
