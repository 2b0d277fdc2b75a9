//! PCI: the headers of PDUs in a normal DIF, whose field widths each DIF configures.
//!
//! The fields are defined in the Pouzin Society's *Error and Flow Control Protocol Specification*,
//! which leaves their widths and order to the DIF.
//!
//! The meaning of a field is the same in every DIF; the layout is the DIF's [`Syntax`].
//! `docs/explanation/pci.md` draws the layouts byte by byte.

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

/// An address: a synonym of an IPCP's name that is valid within its DIF only. 0 is not an address;
/// in a PDU it means the neighbour at the other end of the N-1 flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

/// CEP-id: the number of one end of a connection, chosen by the IPCP at that end. 0 is not a
/// CEP-id, except in a DIF of rlite, whose members count from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CepId(pub u32);

/// QoS-id: the number of a QoS cube of the DIF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QosId(pub u16);

impl Address {
    /// The value 0, which is no member's address.
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

/// Widths of the PCI's fields in bytes, each 1, 2, 4 or 8. [`Syntax::check`] checks which widths a
/// dialect supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Widths {
    /// Width of addresses, in bytes.
    pub address: u8,
    /// Width of CEP-ids, in bytes.
    pub cep: u8,
    /// Width of QoS-ids, in bytes; 1 or 2.
    pub qos: u8,
    /// Width of the sequence numbers of data PDUs and of window edges, in bytes.
    pub seq: u8,
    /// Width of the sequence numbers of control PDUs, in bytes.
    pub ctrl_seq: u8,
    /// Width of the field with the PDU's length, in bytes; 2 or 4.
    pub length: u8,
    /// Width of rates in control PDUs, in bytes.
    pub rate: u8,
    /// Width of the time frames of rates in control PDUs, in bytes.
    pub frame: u8,
}

impl Widths {
    /// Default widths of a native DIF: the PCI of a data PDU then has 19 bytes.
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

    /// Widths that rlite is compiled with by default: 28 bytes in front of user data. rlite does
    /// not transmit rates and time frames.
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

    /// Widths in the default DIF template of IRATI: 19 bytes in front of user data.
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

    /// The largest width that any dialect has for each field.
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

/// How a DIF encodes its PDUs: a dialect, and the widths of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Syntax {
    /// The dialect, which determines order and byte order of the fields.
    pub dialect: Dialect,
    /// The widths of the fields.
    pub widths: Widths,
}

impl Syntax {
    /// Returns the syntax of `dialect` with its default widths.
    #[must_use]
    pub const fn of_dialect(dialect: Dialect) -> Syntax {
        Syntax {
            dialect,
            widths: dialect.widths(),
        }
    }
}

/// Families of PCI layouts. They differ in byte order, order of fields, values of PDU types, and
/// whether acknowledgements name the next or the last sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Carina's own layout, in network byte order (default).
    #[default]
    Native,
    /// The layout of rlite: little-endian, 28 bytes. Acknowledgements name the next expected
    /// number.
    Rlite,
    /// The layout of IRATI: little-endian, 19 bytes with the default widths. Acknowledgements name
    /// the last number received.
    Irati,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Dialect; 3] = [Dialect::Native, Dialect::Rlite, Dialect::Irati];

    /// Returns the default field widths of the dialect.
    #[must_use]
    pub const fn widths(self) -> Widths {
        match self {
            Dialect::Native => Widths::DEFAULT,
            Dialect::Rlite => Widths::RLITE,
            Dialect::Irati => Widths::IRATI,
        }
    }

    /// Returns the name of the dialect, as configurations write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Native => "native",
            Dialect::Rlite => "rlite",
            Dialect::Irati => "irati",
        }
    }

    /// Returns the dialect with this name in configurations, or `None`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Dialect> {
        Dialect::ALL
            .into_iter()
            .find(|dialect| dialect.name() == name)
    }
}
