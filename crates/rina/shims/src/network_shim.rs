//! The manager's side of a shim over a network.
//!
//! The manager opens the sockets of the network, so that it can report errors at once. It then
//! passes them to the data plane in a builder of the shim's app.

use carina_api::{AppName, IpcpId, PortId};
use carina_dataplane::{
    Command, CommandHandle, Event, FlowEnd, FlowRequest, IpcProcess, Mailbox, QosOffered, Refusal,
};
use carina_ipcp::ConnectReader;

/// The manager's side of an `eth`, `udp` or `tcp` shim.
///
/// The shim has no directory: it resolves a name only when a flow to the name is requested.
pub struct NetworkShim {
    kind: &'static str,
    offered: QosOffered,
    commands: CommandHandle,
    /// Label of the medium while it is up, otherwise the reason why it is down.
    link: Result<String, String>,
}

impl NetworkShim {
    /// Creates the manager's side of an IPCP that is added to the data plane. `kind` is the type in
    /// the configuration.
    #[must_use]
    pub fn new(
        ipcp: IpcpId,
        kind: &'static str,
        offered: QosOffered,
        commands: Mailbox<Command>,
    ) -> NetworkShim {
        NetworkShim {
            kind,
            offered,
            commands: CommandHandle::new(ipcp, commands),
            link: Err("the interface has not been checked yet".to_owned()),
        }
    }
}

impl IpcProcess for NetworkShim {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn qos_offered(&self) -> QosOffered {
        self.offered
    }

    fn register(&mut self, name: &AppName) -> Result<(), Refusal> {
        self.commands.register(name)
    }

    fn register_ipcp(&mut self, name: &AppName, reader: ConnectReader) -> Result<(), Refusal> {
        self.commands.register_ipcp(name, reader)
    }

    /// The data plane refuses requests for a name before it has registered the name, and peers do
    /// not repeat bare datagrams. So registration completes only when the data plane confirms it.
    fn registers_later(&self) -> bool {
        self.link.is_ok()
    }

    fn unregister(&mut self, name: &AppName) -> Result<(), Refusal> {
        self.commands.unregister(name)
    }

    fn reaches(&self, _name: &AppName) -> bool {
        false
    }

    fn may_reach(&self, _name: &AppName) -> bool {
        self.link.is_ok()
    }

    fn allocate(&mut self, call: FlowRequest, end: Option<FlowEnd>) -> Result<(), Refusal> {
        self.offered.meets(&call.spec).map_err(Refusal::Quality)?;
        if let Err(reason) = &self.link {
            return Err(Refusal::LinkDown(reason.clone()));
        }
        self.commands.allocate(call, end)
    }

    fn respond(
        &mut self,
        port: PortId,
        answer: Result<Option<FlowEnd>, String>,
    ) -> Result<(), Refusal> {
        self.commands.respond(port, answer)
    }

    fn deallocate(&mut self, port: PortId, reason: &str) {
        self.commands.deallocate(port, reason);
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::LinkUp { ipcp, peer } if *ipcp == self.commands.ipcp() => {
                self.link = Ok(peer.clone())
            }
            Event::LinkDown { ipcp, reason } if *ipcp == self.commands.ipcp() => {
                self.link = Err(reason.clone());
            }
            Event::SduMaxChanged {
                ipcp,
                sdu_bytes_max,
            } if *ipcp == self.commands.ipcp() => self.offered.sdu_bytes_max = Some(*sdu_bytes_max),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_sdu_of_the_medium_is_offered() {
        let ipcp = IpcpId(2);
        let commands = Mailbox::new().unwrap();
        let mut shim = NetworkShim::new(ipcp, "eth", QosOffered::datagrams(9000), commands);
        for (ipcp, sdu_bytes_max) in [(IpcpId(3), 700), (ipcp, 1500)] {
            shim.handle(&Event::SduMaxChanged {
                ipcp,
                sdu_bytes_max,
            });
        }
        assert_eq!(shim.qos_offered().sdu_bytes_max, Some(1500));
    }

    #[test]
    fn registration_is_confirmed_while_the_medium_is_up() {
        let ipcp = IpcpId(2);
        let commands = Mailbox::new().unwrap();
        let mut shim = NetworkShim::new(ipcp, "udp", QosOffered::datagrams(1400), commands);
        assert!(!shim.registers_later());
        let peer = "127.0.0.1:3359".to_owned();
        shim.handle(&Event::LinkUp { ipcp, peer });
        assert!(shim.registers_later());
        let reason = "it is gone".to_owned();
        shim.handle(&Event::LinkDown { ipcp, reason });
        assert!(!shim.registers_later());
    }
}
