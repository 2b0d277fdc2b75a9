//! Reads the M_CONNECT in the first PDU of an N-1 flow. Shims use it whose medium has no message of
//! its own that starts a flow.
//!
//! A station of another stack that has resolved a name once does not send RINA ARP again. When this
//! side restarts, the station's first frame is M_CONNECT, and only M_CONNECT says which IPCP calls
//! which.

use alloc::vec::Vec;

use carina_wire::Payload;
use carina_wire::dif::{Address, Dialect, PduType, Syntax, Widths};

use crate::config::{DifConfig, component};
use crate::dialects::Dialects;
use crate::layer::{ConnectNames, ReadNames};

/// Bytes at the front of a PDU that are decoded first: enough for a PCI of any widths.
const PREFIX: usize = 64;

/// Recognizes the M_CONNECT of one DIF among other PDUs.
#[derive(Clone, Debug)]
pub struct ConnectReader {
    syntax: Syntax,
    has_checksum: bool,
    names: ReadNames,
}

impl ConnectReader {
    /// A reader for a DIF of `dialect`, which is one of `dialects`. `config` of `None` means the
    /// dialect's default format. Returns `None` for a dialect whose members always send a message
    /// of their own before the first PDU.
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

    /// Returns the names in `pdu` if it is an M_CONNECT, else `None`. The PDU is untrusted.
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
