//! Registered IPCPs whose peers connect to them. A peer's first PDU is an M_CONNECT, which names
//! the called and the calling IPCP.

use std::collections::BTreeMap;

use carina_api::AppName;
use carina_engine::Packet;
use carina_ipcp::ConnectReader;

/// Names of registered IPCPs, each with a reader that decodes the M_CONNECT of its DIF.
#[derive(Default)]
pub(crate) struct Connectable(BTreeMap<AppName, ConnectReader>);

impl Connectable {
    /// Adds the name of an IPCP.
    pub(crate) fn insert(&mut self, name: AppName, reader: ConnectReader) {
        self.0.insert(name, reader);
    }

    /// Removes a name, if it is present.
    pub(crate) fn remove(&mut self, name: &AppName) {
        self.0.remove(name);
    }

    /// Whether no IPCP is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first name in alphabetical order.
    pub(crate) fn first(&self) -> Option<&AppName> {
        self.0.keys().next()
    }

    /// Whether a name is present.
    pub(crate) fn has(&self, name: &AppName) -> bool {
        self.0.contains_key(name)
    }

    /// The called and the calling name, if the packet is an M_CONNECT to a registered IPCP.
    pub(crate) fn read(&self, packet: &Packet) -> Option<(AppName, AppName)> {
        self.0.iter().find_map(|(called, reader)| {
            let names = reader.read(packet)?;
            let is_called = names.called == called.as_str();
            let calling = AppName::new(names.calling).ok().filter(|_| is_called)?;
            Some((called.clone(), calling))
        })
    }
}
