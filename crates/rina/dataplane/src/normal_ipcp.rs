//! A normal IPCP as the manager sees it: names, membership, and commands to the data plane.

use std::collections::BTreeSet;

use carina_api::{AppName, IpcpId, PortId};
use carina_ipcp::DifConfig;
use carina_ipcp::policy::component::DIRECTORY;

use crate::command::{Command, FlowEnd};
use crate::command_handle::CommandHandle;
use crate::event::Event;
use crate::ipc_process::{FlowRequest, IpcProcess, Refusal};
use crate::mailbox::Mailbox;
use crate::qos::QosOffered;

/// How much of the DIF's ports a member has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectoryScope {
    /// All of it.
    Whole,
    /// Names are looked up when they are called.
    OnDemand,
}

/// A normal DIF, seen from one member.
pub struct NormalIpcp {
    commands: CommandHandle,
    /// Names that the DIF's ports has, those of this system among them.
    known: BTreeSet<AppName>,
    /// How much of the directory is here while enrolled, else why this is not a member.
    membership: Result<DirectoryScope, String>,
    /// The IPCP is on the data plane and answers.
    has_begun: bool,
}

impl NormalIpcp {
    /// A normal IPCP that is added to the data plane with [`NormalBuilder`](crate::NormalBuilder);
    /// [`NormalIpcp::begin`] says when.
    #[must_use]
    pub fn new(ipcp: IpcpId, commands: Mailbox<Command>) -> NormalIpcp {
        NormalIpcp {
            commands: CommandHandle::new(ipcp, commands),
            known: BTreeSet::new(),
            membership: Err("it is not enrolled yet".to_owned()),
            has_begun: false,
        }
    }

    /// The IPCP has been added to the data plane.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }

    /// The names registered at this member, in order.
    pub fn names(&self) -> impl Iterator<Item = &AppName> {
        self.commands.names()
    }

    /// Gives a command to the IPCP's machine.
    pub fn command(&self, command: carina_ipcp::Command) {
        self.commands.member(command);
    }
}

fn directory_of(config: &DifConfig) -> DirectoryScope {
    match config
        .policies
        .get(DIRECTORY)
        .map(|spec| spec.name.as_str())
    {
        None | Some("" | "replicated") => DirectoryScope::Whole,
        Some(_) => DirectoryScope::OnDemand,
    }
}

impl IpcProcess for NormalIpcp {
    fn kind(&self) -> &'static str {
        "normal"
    }

    fn qos_offered(&self) -> QosOffered {
        // Which cube can promise what is decided by the DIF's own policy when a flow is asked for.
        QosOffered {
            delay_us: Some(0),
            jitter_us: None,
            bandwidth_bps: None,
            ..QosOffered::SHARED_MEMORY
        }
    }

    fn register(&mut self, name: &AppName) -> Result<(), Refusal> {
        self.commands.register(name)
    }

    fn registers_later(&self) -> bool {
        self.has_begun
    }

    fn unregister(&mut self, name: &AppName) -> Result<(), Refusal> {
        self.commands.unregister(name)
    }

    fn reaches(&self, name: &AppName) -> bool {
        match self.membership {
            Ok(DirectoryScope::Whole) => self.known.contains(name) || self.commands.has(name),
            // The DIF refuses the flow when no member has the name.
            Ok(DirectoryScope::OnDemand) => true,
            Err(_) => false,
        }
    }

    fn allocate(&mut self, call: FlowRequest, end: Option<FlowEnd>) -> Result<(), Refusal> {
        self.qos_offered()
            .meets(&call.spec)
            .map_err(Refusal::Quality)?;
        if let Err(reason) = &self.membership {
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
            Event::PeerRegistered { ipcp, name } if *ipcp == self.commands.ipcp() => {
                self.known.insert(name.clone());
            }
            Event::PeerUnregistered { ipcp, name } if *ipcp == self.commands.ipcp() => {
                self.known.remove(name);
            }
            // It could not be started.
            Event::LinkDown { ipcp, .. } if *ipcp == self.commands.ipcp() => self.has_begun = false,
            Event::Member { ipcp, event } if *ipcp == self.commands.ipcp() => match event {
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
}
