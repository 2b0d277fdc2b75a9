//! The port table: which IPCP and which user each port-id of the data plane belongs to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use carina_api::{IpcpId, PortId};
use carina_engine::AppId;
use carina_ipcp::N1Port;

/// The manager's request that a flow ends, with the reason for the peer.
pub type CloseRequest = Rc<RefCell<Option<String>>>;

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
}

/// All port-ids that are in use on the data plane. Clones share one table.
#[derive(Clone, Default)]
pub struct PortTable(Rc<RefCell<Ports>>);

#[derive(Default)]
struct Ports {
    entries: HashMap<PortId, PortEntry>,
    /// Where the next search for a free port-id begins.
    next: u32,
}

impl PortTable {
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

    /// Enters a flow that a peer requests through `ipcp`, under a port-id that has been free for
    /// long: a command that the manager still gives for the port-id's last flow must not reach the
    /// new one. The port-ids from 2^31 to 2^31 + 2^30 belong to the data plane.
    #[must_use]
    pub fn add_incoming(&self, ipcp: IpcpId, name: String) -> PortId {
        let mut ports = self.0.borrow_mut();
        let range = FIRST..END;
        let is_free = |port: &u32| !ports.entries.contains_key(&PortId(*port));
        // Live flows are far fewer than port-ids, so this ends after a few steps.
        let from = ports.next.max(range.start);
        let port = (from..range.end).chain(range).find(is_free).unwrap_or(from);
        ports.next = if port + 1 < END { port + 1 } else { FIRST };
        let entry = PortEntry {
            ipcp: Some(ipcp),
            name,
            owner: None,
        };
        ports.entries.insert(PortId(port), entry);
        PortId(port)
    }
}

/// The first port-id that the data plane chooses, and the one after the last.
const FIRST: u32 = 0x8000_0000;
const END: u32 = 0xc000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_port_is_not_the_next_of_any_ipcp() {
        let ports = PortTable::default();
        let mut seen = Vec::new();
        for ipcp in [1, 2, 1, 3, 3, 1] {
            let port = ports.add_incoming(IpcpId(ipcp), String::new());
            assert!(!seen.contains(&port), "{port} again");
            seen.push(port);
            ports.remove(port);
        }
    }
}
