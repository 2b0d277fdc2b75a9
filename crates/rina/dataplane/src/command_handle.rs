//! The manager's end of one IPCP on the data plane: its commands, and the names registered there.

use std::collections::BTreeSet;

use carina_api::{AppName, IpcpId, PortId};
use carina_ipcp::ConnectReader;

use crate::command::{Command, FlowEnd};
use crate::ipc_process::{FlowRequest, Refusal};
use crate::mailbox::Mailbox;

/// Gives the commands of one IPCP to the data plane. What differs between kinds of IPCP, such as
/// when a name can be reached, is checked before by their [`IpcProcess`](crate::IpcProcess).
pub struct CommandHandle {
    ipcp: IpcpId,
    commands: Mailbox<Command>,
    names: BTreeSet<AppName>,
}

impl CommandHandle {
    /// The handle of an IPCP that is or will be added to the data plane behind `commands`.
    #[must_use]
    pub fn new(ipcp: IpcpId, commands: Mailbox<Command>) -> CommandHandle {
        CommandHandle {
            ipcp,
            commands,
            names: BTreeSet::new(),
        }
    }

    /// The IPCP, as events carry it.
    #[must_use]
    pub fn ipcp(&self) -> IpcpId {
        self.ipcp
    }

    /// The registered names, in order.
    pub fn names(&self) -> impl Iterator<Item = &AppName> {
        self.names.iter()
    }

    /// True when `name` is registered.
    #[must_use]
    pub fn has(&self, name: &AppName) -> bool {
        self.names.contains(name)
    }

    /// Registers a name.
    ///
    /// # Errors
    /// [`Refusal::NameTaken`].
    pub fn register(&mut self, name: &AppName) -> Result<(), Refusal> {
        self.register_with(name, None)
    }

    /// Registers a name of an IPCP. See
    /// [`IpcProcess::register_ipcp`](crate::IpcProcess::register_ipcp).
    ///
    /// # Errors
    /// [`Refusal::NameTaken`].
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

    /// Withdraws the registration of a name.
    ///
    /// # Errors
    /// [`Refusal::NotRegistered`].
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

    /// Requests a flow.
    ///
    /// # Errors
    /// [`Refusal::NoEnd`].
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

    /// Answers an incoming flow.
    ///
    /// # Errors
    /// [`Refusal::NoEnd`] for an accepted flow without an end.
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

    /// Ends a flow.
    pub fn deallocate(&self, port: PortId, reason: &str) {
        self.commands.put(Command::Deallocate {
            port,
            reason: reason.to_owned(),
        });
    }

    /// Gives a command to the machine of a normal IPCP.
    pub fn member(&self, command: carina_ipcp::Command) {
        let ipcp = self.ipcp;
        self.commands.put(Command::Member { ipcp, command });
    }
}
