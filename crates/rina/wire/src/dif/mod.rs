//! PCI: the headers of a normal DIF's PDUs, with the field widths of that DIF.
//!
//! The fields are those of the Pouzin Society's *Error and Flow Control Protocol Specification*;
//! the specification leaves widths and order to the DIF.
//!
//! What a field *means* is the same in every DIF; how it is laid out is the DIF's [`Syntax`]. The
//! layouts are drawn byte by byte in `docs/explanation/pci.md`.

mod checksum;
mod field;
mod header;
mod irati;
mod native;
mod neighbour_check;
mod pci;
mod rlite;
mod syntax;

pub use header::{Decoded, FieldError, PciError, RelayHeader};
pub use neighbour_check::{NEIGHBOUR_CHECK_BYTES, append_neighbour_check, without_neighbour_check};
pub use pci::{Ack, Control, Pci, PduType, SACK_RANGES_MAX, Sack, Window};

use core::fmt;

/// An address: a synonym for an IPCP's name that is valid within its DIF only. 0 is not an address:
/// in a PDU it means the neighbour at the other end of the N-1 flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

/// One end of a connection, chosen by the IPCP that has it. 0 is not a CEP-id, except
/// in an rlite DIF, whose other members count from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CepId(pub u32);

/// A QoS cube of the DIF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QosId(pub u16);

impl Address {
    /// No address.
    pub const NONE: Address = Address(0);
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for CepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for QosId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Longest header of any PDU in any DIF, in bytes. Data and management PDUs have at most 42.
pub const PCI_BYTES_MAX: usize = 209;

/// Widths of the PCI's fields in bytes: each 1, 2, 4 or 8. [`Syntax::check`] knows which of them a
/// dialect has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Widths {
    /// Addresses.
    pub address: u8,
    /// CEP-ids.
    pub cep: u8,
    /// QoS-ids; 1 or 2.
    pub qos: u8,
    /// Sequence numbers of data PDUs, and window edges.
    pub seq: u8,
    /// Sequence numbers of control PDUs.
    pub ctrl_seq: u8,
    /// Length of the PDU; 2 or 4.
    pub length: u8,
    /// Rates in control PDUs.
    pub rate: u8,
    /// Time frames of rates in control PDUs.
    pub frame: u8,
}

impl Widths {
    /// What a DIF has unless configured otherwise: 19 bytes in front of user data.
    pub const DEFAULT: Widths = Widths {
        address: 2,
        cep: 2,
        qos: 1,
        seq: 4,
        ctrl_seq: 4,
        length: 2,
        rate: 4,
        frame: 4,
    };

    /// What an rlite DIF has unless its modules were compiled otherwise: 28 bytes in front of user
    /// data. Rates and time frames are not on the wire.
    pub const RLITE: Widths = Widths {
        address: 4,
        cep: 2,
        qos: 2,
        seq: 4,
        ctrl_seq: 4,
        length: 2,
        rate: 4,
        frame: 4,
    };

    /// What the template of an IRATI DIF has unless it was changed: 19 bytes in front of user data.
    pub const IRATI: Widths = Widths {
        address: 2,
        cep: 2,
        qos: 2,
        seq: 4,
        ctrl_seq: 4,
        length: 2,
        rate: 4,
        frame: 4,
    };

    /// The widest of everything.
    pub const WIDEST: Widths = Widths {
        address: 8,
        cep: 4,
        qos: 2,
        seq: 8,
        ctrl_seq: 8,
        length: 4,
        rate: 4,
        frame: 4,
    };
}

impl Default for Widths {
    fn default() -> Widths {
        Widths::DEFAULT
    }
}

/// How a DIF writes its PDUs down: a family of layouts, and the widths in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Syntax {
    /// The family.
    pub dialect: Dialect,
    /// The widths.
    pub widths: Widths,
}

impl Syntax {
    /// A dialect with the widths that it usually has.
    #[must_use]
    pub const fn of_dialect(dialect: Dialect) -> Syntax {
        Syntax {
            dialect,
            widths: dialect.widths(),
        }
    }
}

/// Families of layouts: byte order, field order, PDU type values, base of acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Carina's own, in network byte order.
    #[default]
    Native,
    /// That of rlite: 28 bytes, little-endian, acknowledgements name what is expected next.
    Rlite,
    /// That of IRATI: 19 bytes with the widths of its template, little-endian, acknowledgements
    /// name what was received last.
    Irati,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Dialect; 3] = [Dialect::Native, Dialect::Rlite, Dialect::Irati];

    /// The widths of a DIF that is not configured otherwise.
    #[must_use]
    pub const fn widths(self) -> Widths {
        match self {
            Dialect::Native => Widths::DEFAULT,
            Dialect::Rlite => Widths::RLITE,
            Dialect::Irati => Widths::IRATI,
        }
    }

    /// Its name in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Native => "native",
            Dialect::Rlite => "rlite",
            Dialect::Irati => "irati",
        }
    }

    /// The dialect of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Dialect> {
        Dialect::ALL
            .into_iter()
            .find(|dialect| dialect.name() == name)
    }
}
