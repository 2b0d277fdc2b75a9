//! The port table: which IPCP and which user each port-id of the data plane belongs to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use carina_api::{IpcpId, PortId};
use carina_engine::AppId;
use carina_ipcp::N1Port;

/// The manager's request that a flow ends, with the reason for the peer.
pub type CloseRequest = Rc<RefCell<Option<String>>>;

/// Has another worker end the flow of a port-id, with the reason for the peer.
pub type EndElsewhere = Rc<dyn Fn(PortId, String)>;

/// The flow of a port-id.
#[derive(Clone)]
pub struct PortEntry {
    /// The IPCP that provides the flow; `None` for a relay between two users of this system.
    pub ipcp: Option<IpcpId>,
    /// The name of the flow in the counters.
    pub name: String,
    /// The user of the flow; `None` while an incoming flow is not accepted.
    pub owner: Option<FlowOwner>,
}

/// The user of a flow.
#[derive(Clone)]
pub enum FlowOwner {
    /// An application: the flow's app, and where the app looks for a request to close.
    App(AppId, CloseRequest),
    /// A normal IPCP of this system, whose N-1 flow this is.
    Ipcp(IpcpId, N1Port),
    /// A normal IPCP on another worker: it ends the flow, and the flow's app here learns that from
    /// the channel between.
    Elsewhere(EndElsewhere),
    /// A normal IPCP here, whose N-1 flow another worker provides, and the app between.
    Crossed(AppId, IpcpId, N1Port),
}

/// All port-ids that are in use on a worker. Clones share one table.
#[derive(Clone)]
pub struct PortTable(Rc<RefCell<Ports>>);

struct Ports {
    entries: HashMap<PortId, PortEntry>,
    /// The port-ids that this worker may choose.
    range: Range<u32>,
    /// Where the next search for a free port-id begins.
    next: u32,
}

impl PortTable {
    /// The table of a worker; every worker has port-ids of its own to choose from.
    #[must_use]
    pub fn of_worker(number: usize) -> PortTable {
        let first = FIRST + number as u32 * PORTS_PER_WORKER;
        PortTable(Rc::new(RefCell::new(Ports {
            entries: HashMap::new(),
            range: first..first + PORTS_PER_WORKER,
            next: first,
        })))
    }

    /// The worker that has chosen a port-id; 0 for one that the manager chose.
    #[must_use]
    pub fn worker_of(port: PortId) -> usize {
        (port.0.saturating_sub(FIRST) / PORTS_PER_WORKER) as usize
    }

    /// The entry of a port-id.
    #[must_use]
    pub fn get(&self, port: PortId) -> Option<PortEntry> {
        self.0.borrow().entries.get(&port).cloned()
    }

    /// Enters a flow under a port-id that the manager has chosen.
    pub fn insert(&self, port: PortId, entry: PortEntry) {
        self.0.borrow_mut().entries.insert(port, entry);
    }

    /// Frees a port-id.
    pub fn remove(&self, port: PortId) {
        self.0.borrow_mut().entries.remove(&port);
    }

    /// Frees a port-id whose flow came from another worker through this app, unless it is of
    /// another flow by now.
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

    /// Enters a flow that a peer requests through `ipcp`, under a port-id that has been free for
    /// long: a command that the manager still gives for the port-id's last flow must not reach the
    /// new one. The port-ids from 2^31 to 2^31 + 2^30 belong to the data plane.
    #[must_use]
    pub fn add_incoming(&self, ipcp: IpcpId, name: String) -> PortId {
        let mut ports = self.0.borrow_mut();
        let (range, from) = (ports.range.clone(), ports.next);
        let is_free = |port: &u32| !ports.entries.contains_key(&PortId(*port));
        // Live flows are far fewer than port-ids, so this ends after a few steps.
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

/// Threads of one data plane.
pub const WORKERS_MAX: usize = 64;

/// The first port-id that the data plane chooses.
const FIRST: u32 = 0x8000_0000;
/// Port-ids that each worker may choose: all together from 2^31 to 2^31 + 2^30.
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
