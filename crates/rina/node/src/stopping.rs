//! Stops a node in order: notifies applications that the node stops, and peers that flows end and
//! members leave.
//!
//! ```text
//!   flows of applications end
//!   members leave, those of the topmost DIFs first: they need the N-1 DIFs to inform their peers
//!   the other IPCPs end
//! ```
//!
//! Between the steps, the data plane sends the messages that are due. All steps together take at
//! most [`STOP_MAX`]. A peer that does not acknowledge in time detects the end by its own
//! keep-alive.

use std::time::{Duration, Instant};

use carina_api::{IpcpId, PortId};
use carina_sys::Ready;

use crate::core::{Core, Token};
use crate::endpoints::FlowOwner;
use crate::ipcps::Process;
use crate::membership::Membership;
use crate::run_directory::STOP_MAX;

impl Core {
    /// Ends all flows, leaves all DIFs and ends all IPCPs, within [`STOP_MAX`].
    pub(crate) fn shut_down(&mut self) {
        let deadline = Instant::now() + STOP_MAX;
        self.stop_flows_of_applications();
        let mut members = self.members();
        while !members.is_empty() {
            let (top, below) = self.topmost(members);
            self.leave_all(&top, deadline);
            members = below;
        }
        // The remaining endpoints are requests for N-1 flows that a member had just started.
        for port in self.endpoints.ports() {
            self.stop_endpoint(port);
        }
        for id in self.ipcps.ids().into_iter().rev() {
            self.stop_ipcp(id);
        }
        self.wait_until_idle(deadline);
    }

    fn stop_flows_of_applications(&mut self) {
        let of_applications = self.endpoints.iter_mut();
        let of_applications = of_applications.filter(|(_, end)| end.owner == FlowOwner::App);
        let ports: Vec<PortId> = of_applications.map(|(port, _)| port).collect();
        for port in ports {
            self.stop_endpoint(port);
        }
    }

    /// Members of normal DIFs, the one created last first.
    fn members(&self) -> Vec<IpcpId> {
        let ids = self.ipcps.ids().into_iter().rev();
        ids.filter(|id| self.ipcps.member(*id).is_some()).collect()
    }

    /// Divides members into those over which no other of them runs, and the rest.
    fn topmost(&self, members: Vec<IpcpId>) -> (Vec<IpcpId>, Vec<IpcpId>) {
        let carries = |id: &IpcpId| {
            let dif = &self.ipcps[*id].dif;
            let mut others = members.iter().filter_map(|other| self.ipcps.member(*other));
            others.any(|other| other.is_over(dif))
        };
        let (below, top): (Vec<IpcpId>, Vec<IpcpId>) = members.iter().copied().partition(carries);
        if top.is_empty() {
            // Cannot happen, since no DIF runs over itself, but would be an endless loop.
            (below, top)
        } else {
            (top, below)
        }
    }

    /// Makes members leave their DIFs, waits until they have left, and ends them.
    fn leave_all(&mut self, members: &[IpcpId], deadline: Instant) {
        for id in members {
            if let Some(Process::Normal(normal)) = self.ipcps.get(*id).map(|ipcp| &ipcp.process) {
                normal.command(carina_ipcp::Command::Leave);
            }
        }
        let mut ready = Vec::new();
        while self.is_any_enrolled(members) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.await_plane(&mut ready, left).is_err() {
                break;
            }
        }
        self.wait_until_idle(deadline);
        for id in members {
            self.stop_ipcp(*id);
        }
        self.wait_until_idle(deadline);
    }

    fn is_any_enrolled(&self, members: &[IpcpId]) -> bool {
        let mut members = members.iter().filter_map(|id| self.ipcps.member(*id));
        members.any(Membership::is_enrolled)
    }

    /// Handles events of the data plane for at most `limit`. Other descriptors are not handled.
    fn await_plane(&mut self, ready: &mut Vec<Ready>, limit: Duration) -> std::io::Result<()> {
        self.epoll.wait(ready, Some(limit.as_nanos() as u64))?;
        let plane = Token::Plane.pack();
        if ready.iter().any(|ready| ready.token == plane) {
            self.dispatch_data_plane_events()
        } else {
            // Another descriptor is ready and would make the next wait return at once.
            std::thread::sleep(PAUSE.min(limit))
        }
        Ok(())
    }

    fn wait_until_idle(&self, deadline: Instant) {
        if !self.plane.wait_until_idle(deadline) {
            tracing::warn!("the node ends before all PDUs are sent: its data plane is busy");
        }
    }

    fn stop_ipcp(&mut self, id: IpcpId) {
        if let Some((name, vm)) = self.detach_ipcp(id, "the node is stopping") {
            self.remove_vm(&name, vm, true);
        }
    }
}

/// Interval at which the data plane is checked while another descriptor is ready.
const PAUSE: Duration = Duration::from_millis(2);
