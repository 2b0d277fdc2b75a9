//! The manager's side of a normal IPCP: names, membership, and commands to the data plane.

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

/// How much of the DIF's directory a member has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectoryScope {
    /// The whole directory.
    Whole,
    /// Nothing: names are looked up when a flow to them is requested.
    OnDemand,
}

/// The manager's side of a member of a normal DIF; the data plane runs the member's state machine.
pub struct NormalIpcp {
    commands: CommandHandle,
    /// Names that are known to be in the DIF's directory, including those of this system.
    known: BTreeSet<AppName>,
    /// While the IPCP is enrolled: how much of the directory it has. Otherwise the reason why it is
    /// not a member.
    membership: Result<DirectoryScope, String>,
    /// Whether the IPCP is on the data plane.
    has_begun: bool,
}

impl NormalIpcp {
    /// Makes the manager's side of an IPCP that is added to the data plane with
    /// [`NormalBuilder`](crate::NormalBuilder). Call [`NormalIpcp::begin`] after that.
    #[must_use]
    pub fn new(ipcp: IpcpId, commands: Mailbox<Command>) -> NormalIpcp {
        NormalIpcp {
            commands: CommandHandle::new(ipcp, commands),
            known: BTreeSet::new(),
            membership: Err("the IPCP is not enrolled yet".to_owned()),
            has_begun: false,
        }
    }

    /// Notes that the IPCP was added to the data plane.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Returns the names registered at this member, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &AppName> {
        self.commands.names()
    }

    /// Passes a command to the IPCP's state machine on the data plane.
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
        // Offers everything, because the DIF's own policy decides at each request which QoS cube
        // can meet it.
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
            // The DIF refuses the flow if no member has the name.
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
            // The IPCP could not be created.
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
