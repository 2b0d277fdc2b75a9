//! The manager's handle of one IPCP on the data plane: sends commands, and keeps the names
//! registered at the IPCP.

use std::collections::BTreeSet;

use carina_api::{AppName, IpcpId, PortId};
use carina_ipcp::ConnectReader;

use crate::command::{Command, FlowEnd};
use crate::ipc_process::{FlowRequest, Refusal};
use crate::mailbox::Mailbox;

/// Sends the commands about one IPCP to the data plane. The [`IpcProcess`](crate::IpcProcess) of
/// each kind of IPCP makes the checks that depend on the kind, such as whether a name can be
/// reached.
pub struct CommandHandle {
    ipcp: IpcpId,
    commands: Mailbox<Command>,
    names: BTreeSet<AppName>,
}

impl CommandHandle {
    /// Makes a handle for an IPCP that is, or will be, on the data plane that reads `commands`.
    #[must_use]
    pub fn new(ipcp: IpcpId, commands: Mailbox<Command>) -> CommandHandle {
        CommandHandle {
            ipcp,
            commands,
            names: BTreeSet::new(),
        }
    }

    /// Returns the id of the IPCP.
    #[must_use]
    pub fn ipcp(&self) -> IpcpId {
        self.ipcp
    }

    /// Returns the names that are registered at the IPCP, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &AppName> {
        self.names.iter()
    }

    /// Whether `name` is registered at the IPCP.
    #[must_use]
    pub fn has(&self, name: &AppName) -> bool {
        self.names.contains(name)
    }

    /// Registers the name of an application at the IPCP.
    ///
    /// # Errors
    /// [`Refusal::NameTaken`] if the name is registered.
    pub fn register(&mut self, name: &AppName) -> Result<(), Refusal> {
        self.register_with(name, None)
    }

    /// Registers the name of another IPCP at this IPCP. See
    /// [`IpcProcess::register_ipcp`](crate::IpcProcess::register_ipcp).
    ///
    /// # Errors
    /// [`Refusal::NameTaken`] if the name is registered.
    pub fn register_ipcp(&mut self, name: &AppName, reader: ConnectReader) -> Result<(), Refusal> {
        self.register_with(name, Some(reader))
    }

    fn register_with(
        &mut self,
        name: &AppName,
        reader: Option<ConnectReader>,
    ) -> Result<(), Refusal> {
        if !self.names.insert(name.clone()) {
            return Err(Refusal::NameTaken(name.clone()));
        }
        self.commands.put(Command::Register {
            ipcp: self.ipcp,
            name: name.clone(),
            reader,
        });
        Ok(())
    }

    /// Withdraws the registration of a name at the IPCP.
    ///
    /// # Errors
    /// [`Refusal::NotRegistered`] if the name is not registered.
    pub fn unregister(&mut self, name: &AppName) -> Result<(), Refusal> {
        if !self.names.remove(name) {
            return Err(Refusal::NotRegistered(name.clone()));
        }
        self.commands.put(Command::Unregister {
            ipcp: self.ipcp,
            name: name.clone(),
        });
        Ok(())
    }

    /// Requests a flow; the data plane reports the result as an event.
    ///
    /// # Errors
    /// [`Refusal::NoEnd`] if `end` is `None`.
    pub fn allocate(&self, call: FlowRequest, end: Option<FlowEnd>) -> Result<(), Refusal> {
        let end = end.ok_or(Refusal::NoEnd)?;
        let FlowRequest {
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

    /// Answers an incoming flow request: accepts it with an end, or refuses it with a reason.
    ///
    /// # Errors
    /// [`Refusal::NoEnd`] if the flow is accepted without an end.
    pub fn respond(
        &self,
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

    /// Ends the flow with port-id `port`; the peer receives `reason`.
    pub fn deallocate(&self, port: PortId, reason: &str) {
        self.commands.put(Command::Deallocate {
            port,
            reason: reason.to_owned(),
        });
    }

    /// Passes a command to the state machine of the IPCP, which must be normal.
    pub fn member(&self, command: carina_ipcp::Command) {
        let ipcp = self.ipcp;
        self.commands.put(Command::Member { ipcp, command });
    }
}
