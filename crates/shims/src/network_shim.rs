//! What shims over a network have in common: how they get to the data plane, and what they are to
//! the manager.
//!
//! A medium is opened by the manager, so that whatever is wrong with it is told at once to whoever
//! asked, and then moves to the data plane with [`Command::AddMedium`].

use std::collections::BTreeSet;

use carina_api::{AppName, IpcpId, PortId};
use carina_engine::counters::Row;
use carina_engine::{App, AppId, Pool};

use crate::command::{Command, Event, FlowEnd};
use crate::hub::{Directory, Orders};
use crate::mailbox::Mailbox;
use crate::offered::Offered;
use crate::shim::{Call, Refusal, Shim};
use crate::tap::Taps;

/// An open medium on its way to the data plane.
pub struct Medium(Box<dyn Boot>);

impl Medium {
    pub(crate) fn new(boot: impl Boot + 'static) -> Medium {
        Medium(Box::new(boot))
    }

    pub(crate) fn label(&self) -> String {
        self.0.label()
    }

    pub(crate) fn into_app(self, parts: HubParts) -> Result<Box<dyn App>, String> {
        self.0.into_app(parts)
    }
}

/// What becomes an app on the data plane.
pub(crate) trait Boot: Send {
    /// What counters call it.
    fn label(&self) -> String;

    /// Makes the app, on the thread of the data plane.
    fn into_app(self: Box<Self>, parts: HubParts) -> Result<Box<dyn App>, String>;
}

/// What the plane gives to the app of an IPCP.
pub(crate) struct HubParts {
    pub id: AppId,
    pub ipcp: IpcpId,
    pub orders: Orders,
    pub events: Mailbox<Event>,
    pub directory: Directory,
    pub row: Row,
    pub pool: Pool,
    pub taps: Taps,
}

/// A shim over a network as the manager sees it.
///
/// Who can be reached is not known before somebody asks, so every name may be.
pub struct MediumShim {
    ipcp: IpcpId,
    kind: &'static str,
    offered: Offered,
    commands: Mailbox<Command>,
    names: BTreeSet<AppName>,
    /// What the medium is called while it is there, else why it is not.
    link: Result<String, String>,
}

impl MediumShim {
    /// The shim of an IPCP that [`Command::AddMedium`] starts; `kind` as the configuration writes
    /// it.
    #[must_use]
    pub fn new(
        ipcp: IpcpId,
        kind: &'static str,
        offered: Offered,
        commands: Mailbox<Command>,
    ) -> MediumShim {
        MediumShim {
            ipcp,
            kind,
            offered,
            commands,
            names: BTreeSet::new(),
            link: Err("the interface has not been looked at yet".to_owned()),
        }
    }

    /// Takes note of an event of the data plane; others' events are ignored.
    pub fn handle(&mut self, event: &Event) {
        match event {
            Event::LinkUp { ipcp, peer } if *ipcp == self.ipcp => self.link = Ok(peer.clone()),
            Event::LinkDown { ipcp, reason } if *ipcp == self.ipcp => {
                self.link = Err(reason.clone());
            }
            Event::Carries {
                ipcp,
                sdu_bytes_max,
            } if *ipcp == self.ipcp => self.offered.sdu_bytes_max = Some(*sdu_bytes_max),
            _ => {}
        }
    }
}

impl Shim for MediumShim {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn offered(&self) -> Offered {
        self.offered
    }

    fn register(&mut self, name: &AppName) -> Result<(), Refusal> {
        if !self.names.insert(name.clone()) {
            return Err(Refusal::NameTaken(name.clone()));
        }
        self.commands.put(Command::Register {
            ipcp: self.ipcp,
            name: name.clone(),
        });
        Ok(())
    }

    /// What comes before the data plane knows the name is turned away, and a bare datagram does not
    /// come again.
    fn registers_later(&self) -> bool {
        self.link.is_ok()
    }

    fn unregister(&mut self, name: &AppName) -> Result<(), Refusal> {
        if !self.names.remove(name) {
            return Err(Refusal::NotRegistered(name.clone()));
        }
        self.commands.put(Command::Unregister {
            ipcp: self.ipcp,
            name: name.clone(),
        });
        Ok(())
    }

    fn reaches(&self, _name: &AppName) -> bool {
        false
    }

    fn may_reach(&self, _name: &AppName) -> bool {
        self.link.is_ok()
    }

    fn allocate(&mut self, call: Call, end: Option<FlowEnd>) -> Result<(), Refusal> {
        self.offered.meets(&call.spec).map_err(Refusal::Quality)?;
        if let Err(reason) = &self.link {
            return Err(Refusal::LinkDown(reason.clone()));
        }
        let end = end.ok_or(Refusal::NoEnd)?;
        let Call {
            port,
            local,
            remote,
            spec,
        } = call;
        self.commands.put(Command::Allocate {
            ipcp: self.ipcp,
            port,
            local,
            remote,
            spec,
            end,
        });
        Ok(())
    }

    fn respond(
        &mut self,
        port: PortId,
        answer: Result<Option<FlowEnd>, String>,
    ) -> Result<(), Refusal> {
        let answer = match answer {
            Ok(end) => Ok(end.ok_or(Refusal::NoEnd)?),
            Err(reason) => Err(reason),
        };
        self.commands.put(Command::Respond { port, answer });
        Ok(())
    }

    fn deallocate(&mut self, port: PortId, reason: &str) {
        self.commands.put(Command::Deallocate {
            port,
            reason: reason.to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_medium_carries_is_offered() {
        let ipcp = IpcpId(2);
        let commands = Mailbox::new().unwrap();
        let mut shim = MediumShim::new(ipcp, "eth", Offered::datagrams(9000), commands);
        for (ipcp, sdu_bytes_max) in [(IpcpId(3), 700), (ipcp, 1500)] {
            shim.handle(&Event::Carries {
                ipcp,
                sdu_bytes_max,
            });
        }
        assert_eq!(shim.offered().sdu_bytes_max, Some(1500));
    }

    #[test]
    fn a_registration_is_confirmed_by_the_data_plane_while_the_medium_is_there() {
        let ipcp = IpcpId(2);
        let commands = Mailbox::new().unwrap();
        let mut shim = MediumShim::new(ipcp, "udp", Offered::datagrams(1400), commands);
        assert!(!shim.registers_later());
        let peer = "127.0.0.1:3359".to_owned();
        shim.handle(&Event::LinkUp { ipcp, peer });
        assert!(shim.registers_later());
        let reason = "it is gone".to_owned();
        shim.handle(&Event::LinkDown { ipcp, reason });
        assert!(!shim.registers_later());
    }
}
