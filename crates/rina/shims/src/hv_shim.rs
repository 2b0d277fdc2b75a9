//! The manager's side of the hypervisor shim: registered names, and commands to the data plane.

use std::collections::BTreeSet;

use carina_api::{AppName, IpcpId, PortId};
use carina_dataplane::{
    Command, CommandHandle, Event, FlowEnd, FlowRequest, IpcProcess, Mailbox, QosOffered, Refusal,
};

/// The manager's side of an `hv` shim, whose DIF connects a virtual machine and its host.
pub struct HvShim {
    commands: CommandHandle,
    peer_names: BTreeSet<AppName>,
    /// The peer's name while the link is up, otherwise the reason why it is down.
    link: Result<String, String>,
}

impl HvShim {
    /// Creates the manager's side of an IPCP that is added to the data plane with
    /// [`HvBuilder`](crate::HvBuilder).
    #[must_use]
    pub fn new(ipcp: IpcpId, commands: Mailbox<Command>) -> HvShim {
        HvShim {
            commands: CommandHandle::new(ipcp, commands),
            peer_names: BTreeSet::new(),
            link: Err("the peer has not connected yet".to_owned()),
        }
    }

    /// Returns the name of the peer's system, if the link is up.
    ///
    /// # Errors
    /// The reason why the link is down.
    pub fn link(&self) -> Result<&str, &str> {
        self.link.as_deref().map_err(String::as_str)
    }

    /// Returns the names registered at this side, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &AppName> {
        self.commands.names()
    }

    /// Returns the names registered at the peer, in alphabetical order.
    pub fn peer_names(&self) -> impl Iterator<Item = &AppName> {
        self.peer_names.iter()
    }
}

impl IpcProcess for HvShim {
    fn kind(&self) -> &'static str {
        "hv"
    }

    fn qos_offered(&self) -> QosOffered {
        QosOffered::SHARED_MEMORY
    }

    fn register(&mut self, name: &AppName) -> Result<(), Refusal> {
        self.commands.register(name)
    }

    fn unregister(&mut self, name: &AppName) -> Result<(), Refusal> {
        self.commands.unregister(name)
    }

    fn reaches(&self, name: &AppName) -> bool {
        self.peer_names.contains(name)
    }

    fn allocate(&mut self, call: FlowRequest, end: Option<FlowEnd>) -> Result<(), Refusal> {
        self.qos_offered()
            .meets(&call.spec)
            .map_err(Refusal::Quality)?;
        if let Err(reason) = &self.link {
            return Err(Refusal::LinkDown(reason.clone()));
        }
        if !self.reaches(&call.remote) {
            return Err(Refusal::Unreachable(call.remote));
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
                self.peer_names.clear();
            }
            Event::PeerRegistered { ipcp, name } if *ipcp == self.commands.ipcp() => {
                self.peer_names.insert(name.clone());
            }
            Event::PeerUnregistered { ipcp, name } if *ipcp == self.commands.ipcp() => {
                self.peer_names.remove(name);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use carina_api::FlowSpec;

    use super::*;

    fn name(text: &str) -> AppName {
        AppName::new(text).unwrap()
    }

    #[test]
    fn a_call_needs_an_attached_peer_that_has_the_name() {
        let mut shim = HvShim::new(IpcpId(2), Mailbox::new().unwrap());
        let call = FlowRequest {
            port: PortId(1),
            local: name("me"),
            remote: name("echo"),
            spec: FlowSpec::reliable(),
        };
        let refusal = shim.allocate(call.clone(), None).unwrap_err();
        assert!(matches!(refusal, Refusal::LinkDown(_)));
        shim.handle(&Event::LinkUp {
            ipcp: IpcpId(2),
            peer: "vm".into(),
        });
        shim.handle(&Event::PeerRegistered {
            ipcp: IpcpId(3),
            name: name("echo"),
        });
        let refusal = shim.allocate(call.clone(), None).unwrap_err();
        assert_eq!(refusal, Refusal::Unreachable(name("echo")));
        shim.handle(&Event::PeerRegistered {
            ipcp: IpcpId(2),
            name: name("echo"),
        });
        assert!(shim.reaches(&name("echo")));
        assert_eq!(shim.allocate(call, None), Err(Refusal::NoEnd));
        shim.handle(&Event::LinkDown {
            ipcp: IpcpId(2),
            reason: "gone".into(),
        });
        assert!(!shim.reaches(&name("echo")));
        assert_eq!(shim.link(), Err("gone"));
    }
}
