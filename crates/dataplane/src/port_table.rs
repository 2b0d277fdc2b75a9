//! What the plane and the apps of IPCPs agree on: orders, and the links of a flow.
//!
//! An IPCP's app is the hub of its flows. Each flow has an app of its own, or ends in the app of an
//! IPCP above.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_engine::{AppId, LinkId};
use carina_ipcp::N1Port;

use crate::flow::CloseOrder;

/// What the plane asks of the app of an IPCP.
pub(crate) enum Order {
    Register(AppName),
    Unregister(AppName),
    Allocate {
        port: PortId,
        local: AppName,
        remote: AppName,
        spec: FlowSpec,
        wires: Wires,
    },
    Respond {
        port: PortId,
        answer: Result<Wires, String>,
    },
    /// Gives up a request of the peer that was not answered.
    Refuse {
        port: PortId,
        reason: String,
    },
    Remove,
}

/// The links of a flow, and the credit for the one toward it.
#[derive(Clone, Copy)]
pub(crate) struct Wires {
    pub to_flow: LinkId,
    pub from_flow: LinkId,
    pub window: u64,
}

/// Where the plane leaves its orders; it wakes the app afterwards.
pub(crate) type Orders = Rc<RefCell<VecDeque<Order>>>;

/// Where the flow of a port is.
pub(crate) struct Place {
    /// The IPCP, unless the flow is a relay.
    pub ipcp: Option<IpcpId>,
    /// What the counters call the flow.
    pub name: String,
    /// Who has the flow's end, once there is one.
    pub holder: Option<Holder>,
}

impl Place {
    /// A flow that a peer has asked for, which has no end here yet.
    pub fn offered(ipcp: IpcpId, name: String) -> Place {
        Place {
            ipcp: Some(ipcp),
            name,
            holder: None,
        }
    }
}

/// Who has the end of a flow.
#[derive(Clone)]
pub(crate) enum Holder {
    /// An application: the flow's app and its close order.
    App(AppId, CloseOrder),
    /// An IPCP of this system, as its N-1 flow.
    Ipcp(IpcpId, N1Port),
}

/// All ports that are in use on the data plane.
pub(crate) type Directory = Rc<RefCell<Places>>;

/// Where the flow of each port is.
#[derive(Default)]
pub(crate) struct Places {
    by_port: HashMap<PortId, Place>,
    /// Where the next search for a free port begins.
    next: u32,
}

impl Deref for Places {
    type Target = HashMap<PortId, Place>;

    fn deref(&self) -> &Self::Target {
        &self.by_port
    }
}

impl DerefMut for Places {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.by_port
    }
}

/// A port for a flow that a peer asked for: one that no IPCP had for long. What the manager still
/// says to the flow that had it last would concern the new one.
///
/// Ports from 2^31 to 2^31 + 2^30 belong to the data plane.
pub(crate) fn free_port(directory: &Directory) -> PortId {
    let mut directory = directory.borrow_mut();
    let ports = 0x8000_0000..0xc000_0000_u32;
    let is_free = |port: &u32| !directory.contains_key(&PortId(*port));
    // Live flows are fewer than ports by far, so this finds one in a few steps.
    let from = directory.next.max(ports.start);
    let port = (from..ports.end).chain(ports).find(is_free).unwrap_or(from);
    directory.next = if port + 1 < 0xc000_0000 {
        port + 1
    } else {
        0x8000_0000
    };
    PortId(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_given_up_is_not_the_next_of_any_ipcp() {
        let directory = Directory::default();
        let mut seen = Vec::new();
        for ipcp in [1, 2, 1, 3, 3, 1] {
            let port = free_port(&directory);
            assert!(!seen.contains(&port), "{port} again");
            seen.push(port);
            let place = Place::offered(IpcpId(ipcp), String::new());
            directory.borrow_mut().insert(port, place);
            directory.borrow_mut().remove(&port);
        }
    }
}
