//! The IPCPs of a shim whose peers connect: M_CONNECT, which is their first PDU, says which IPCP
//! calls which.

use std::collections::BTreeMap;

use carina_api::AppName;
use carina_engine::Packet;
use carina_ipcp::ConnectReader;

/// The registered names of such IPCPs, each with what knows the M_CONNECT of its DIF.
#[derive(Default)]
pub(crate) struct Connectable(BTreeMap<AppName, ConnectReader>);

impl Connectable {
    /// Adds a name.
    pub fn insert(&mut self, name: AppName, reader: ConnectReader) {
        self.0.insert(name, reader);
    }

    /// Forgets a name, if it is one of them.
    pub fn remove(&mut self, name: &AppName) {
        self.0.remove(name);
    }

    /// True when there is no such name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first name in order.
    pub fn first(&self) -> Option<&AppName> {
        self.0.keys().next()
    }

    /// Whether a name is one of them.
    pub fn has(&self, name: &AppName) -> bool {
        self.0.contains_key(name)
    }

    /// The called and the calling name in a packet that is M_CONNECT to one of these IPCPs.
    pub fn read(&self, packet: &Packet) -> Option<(AppName, AppName)> {
        self.0.iter().find_map(|(called, reader)| {
            let names = reader.read(packet)?;
            let is_called = names.called == called.as_str();
            let calling = AppName::new(names.calling).ok().filter(|_| is_called)?;
            Some((called.clone(), calling))
        })
    }
}
