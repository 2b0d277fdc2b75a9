//! Reads M_CONNECT in the first PDU of an N-1 flow, for a shim whose medium has no message of its
//! own that begins a flow.
//!
//! A station of another stack that has once resolved a name never sends RINA ARP again: after a
//! restart of this side its first frame is M_CONNECT, and only that says which IPCP calls which.

use alloc::vec::Vec;

use carina_wire::Payload;
use carina_wire::dif::{Address, Dialect, PduType, Syntax, Widths};

use crate::config::{DifConfig, component};
use crate::dialects::Dialects;
use crate::layer::{ConnectNames, ReadNames};

/// Bytes at the front of a PDU that are looked at before the rest: enough for a PCI of any widths.
const PREFIX: usize = 64;

/// Knows the M_CONNECT of one DIF from every other PDU.
#[derive(Clone, Debug)]
pub struct ConnectReader {
    syntax: Syntax,
    has_checksum: bool,
    names: ReadNames,
}

impl ConnectReader {
    /// The reader of a DIF whose dialect is one of `dialects`. Without a configuration the DIF has
    /// the format that is usual in its dialect. `None` where a member always has a message of its
    /// own before the first PDU.
    #[must_use]
    pub fn new(
        dialects: Dialects,
        dialect: Dialect,
        config: Option<&DifConfig>,
    ) -> Option<ConnectReader> {
        let names = dialects.connect_names(dialect)?;
        let widths = match config {
            Some(config) => Widths::from(config.widths),
            None => dialect.widths(),
        };
        let policies = config.map(|config| &config.policies);
        let checksum = policies.and_then(|policies| policies.get(component::PCI_CHECKSUM));
        Some(ConnectReader {
            syntax: Syntax { dialect, widths },
            has_checksum: checksum.is_some_and(|spec| !matches!(&*spec.name, "" | "none")),
            names,
        })
    }

    /// The names in a PDU that is M_CONNECT. Anyone may have written it.
    #[must_use]
    pub fn read(&self, pdu: &impl Payload) -> Option<ConnectNames> {
        let mut prefix = [0; PREFIX];
        let count = pdu.copy_prefix(&mut prefix);
        let header = self.syntax.decode(&prefix[..count], pdu.len()).ok()?;
        if header.pci.kind != PduType::Management || header.pci.dst != Address::NONE {
            return None;
        }
        let mut bytes = Vec::with_capacity(pdu.len());
        pdu.append_to(&mut bytes);
        // A network card may have padded the frame.
        bytes.truncate(header.pdu_bytes);
        if self.has_checksum && !self.syntax.has_valid_checksum(&bytes) {
            return None;
        }
        (self.names)(bytes.get(header.header_bytes..)?)
    }
}
