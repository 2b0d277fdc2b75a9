//! A normal IPCP as the manager sees it: which names are where, and orders to the data plane.

use std::collections::BTreeSet;

use carina_api::{AppName, IpcpId, PortId};
use carina_ipcp::DifConfig;
use carina_ipcp::policy::component::DIRECTORY;

use crate::command::{Command, Event, FlowEnd};
use crate::mailbox::Mailbox;
use crate::offered::Offered;
use crate::shim::{Call, Refusal, Shim};

/// How much of the DIF's directory a member has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directory {
    /// All of it.
    Whole,
    /// Names are looked up when they are called.
    OnDemand,
}

/// A normal DIF, seen from one member.
pub struct NormalShim {
    ipcp: IpcpId,
    commands: Mailbox<Command>,
    names: BTreeSet<AppName>,
    /// Names that the DIF's directory has, those of this system among them.
    known: BTreeSet<AppName>,
    /// Whether every name is known here while this is a member of the DIF, else why it is none.
    membership: Result<Directory, String>,
    /// The IPCP is on the data plane and answers.
    has_begun: bool,
}

impl NormalShim {
    /// The shim of an IPCP that [`Command::AddNormal`] starts; [`NormalShim::begin`] says when.
    #[must_use]
    pub fn new(ipcp: IpcpId, commands: Mailbox<Command>) -> NormalShim {
        NormalShim {
            ipcp,
            commands,
            names: BTreeSet::new(),
            known: BTreeSet::new(),
            membership: Err("it is not enrolled yet".to_owned()),
            has_begun: false,
        }
    }

    /// [`Command::AddNormal`] has been given.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Takes note of an event of the data plane; others' events are ignored.
    pub fn handle(&mut self, event: &Event) {
        match event {
            Event::PeerRegistered { ipcp, name } if *ipcp == self.ipcp => {
                self.known.insert(name.clone());
            }
            Event::PeerUnregistered { ipcp, name } if *ipcp == self.ipcp => {
                self.known.remove(name);
            }
            // It could not be started.
            Event::LinkDown { ipcp, .. } if *ipcp == self.ipcp => self.has_begun = false,
            Event::Member { ipcp, event } if *ipcp == self.ipcp => match event {
                carina_ipcp::Event::Enrolled { config, .. } => {
                    self.membership = Ok(directory_of(config));
                }
                carina_ipcp::Event::Left { reason } => {
                    self.membership = Err(reason.clone());
                    self.known.clear();
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// The names registered at this member, in order.
    pub fn names(&self) -> impl Iterator<Item = &AppName> {
        self.names.iter()
    }

    /// Gives an order to the IPCP's machine.
    pub fn order(&self, order: carina_ipcp::Command) {
        let ipcp = self.ipcp;
        self.commands.put(Command::Member { ipcp, order });
    }
}

fn directory_of(config: &DifConfig) -> Directory {
    match config
        .policies
        .get(DIRECTORY)
        .map(|spec| spec.name.as_str())
    {
        None | Some("" | "replicated") => Directory::Whole,
        Some(_) => Directory::OnDemand,
    }
}

impl Shim for NormalShim {
    fn kind(&self) -> &'static str {
        "normal"
    }

    fn offered(&self) -> Offered {
        // Which cube can promise what is decided by the DIF's own policy when a flow is asked for.
        Offered {
            delay_us: Some(0),
            jitter_us: None,
            bandwidth_bps: None,
            ..Offered::SHARED_MEMORY
        }
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

    fn registers_later(&self) -> bool {
        self.has_begun
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

    fn reaches(&self, name: &AppName) -> bool {
        match self.membership {
            Ok(Directory::Whole) => self.known.contains(name) || self.names.contains(name),
            // The DIF says no when it turns out that nobody has the name.
            Ok(Directory::OnDemand) => true,
            Err(_) => false,
        }
    }

    fn allocate(&mut self, call: Call, end: Option<FlowEnd>) -> Result<(), Refusal> {
        self.offered().meets(&call.spec).map_err(Refusal::Quality)?;
        if let Err(reason) = &self.membership {
            return Err(Refusal::LinkDown(reason.clone()));
        }
        if !self.reaches(&call.remote) {
            return Err(Refusal::Unreachable(call.remote));
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
