//! Faults in a file of ports, with their lines.

use carina_filter::FilterError;
use carina_graph::graph_file::GraphFileError;
use carina_wire::ether::Mac;

use super::PORTS_MAX;
use super::lua::LuaReason;

/// A value and the line it is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At<T> {
    /// Number of the line on which the value is, from 1.
    pub line: usize,
    /// The value that was read from that line.
    pub value: T,
}

impl<T> At<T> {
    /// Replaces the value, and keeps the line.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At {
            line: self.line,
            value: change(self.value),
        }
    }

    /// Makes an error for a fault of this value.
    pub(super) fn is_wrong(&self, fault: Fault) -> FileError {
        FileError {
            line: self.line,
            fault,
        }
    }
}

/// Why a file of ports is refused: the number of a line, and the fault on it.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct FileError {
    /// Number of the line with the fault, from 1.
    pub line: usize,
    /// The fault on the line.
    pub fault: Fault,
}

/// A fault in a file of ports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The text is not TOML, or a field is unknown or has the wrong type.
    #[error("{0}")]
    Toml(String),
    /// The text is not a Lua table.
    #[error(transparent)]
    Lua(LuaReason),
    /// A field has a value of the wrong type.
    #[error("{field} is {found}: {wanted} is expected")]
    Type {
        /// Name of the field whose value has the wrong type.
        field: String,
        /// Type of the value that the file gives the field, such as `a string`.
        found: &'static str,
        /// Type that the field must have, such as `a number`.
        wanted: &'static str,
    },
    /// A field is unknown.
    #[error("{field}: unknown field; expected {known}")]
    Unknown {
        /// The name in the file that is no field.
        field: String,
        /// Names of the fields that the table may have, as a list in text.
        known: String,
    },
    /// A mandatory field is missing.
    #[error("{field} is missing: give {wanted}")]
    Missing {
        /// Name of the field that is missing.
        field: &'static str,
        /// What the field should contain.
        wanted: &'static str,
    },
    /// A field has an invalid value.
    #[error("{field} = {found:?}: {wanted}")]
    Value {
        /// Name of the field whose value is invalid.
        field: String,
        /// The value that the file gives the field.
        found: String,
        /// A value that would be valid.
        wanted: String,
    },
    /// A filter cannot be compiled.
    #[error("{field}: {error}")]
    Filter {
        /// Name of the field that contains the filter.
        field: &'static str,
        /// Why the filter cannot be compiled.
        error: FilterError,
    },
    /// A port has an app of its own and fields of a guest's card; holds the names of these fields.
    #[error("app beside {0}: give a port either app or the fields of a guest's card, not both")]
    AppAndCard(String),
    /// The file contains an invalid configuration of an app.
    #[error("{}", of_app(.0))]
    App(#[from] GraphFileError),
    /// Two ports have the same name, or long names from which Carina would derive the same names of
    /// apps.
    #[error("port {name}: the port on line {other} already has this name")]
    TwoNames {
        /// Name of the port that is defined second and repeats the name.
        name: String,
        /// Line of the file, from 1, that defines the first port with this name.
        other: usize,
    },
    /// Two ports have the same MAC address in one VLAN.
    #[error(
        "port {name}: mac = {mac}: port {other} in the same VLAN has this address too; each \
         station needs its own"
    )]
    TwoAddresses {
        /// Name of the port that is defined second and repeats the address.
        name: String,
        /// The MAC address that two ports have.
        mac: Mac,
        /// Name of the port that is defined first with this address.
        other: String,
    },
    /// Two ports of the file are configured with the same socket.
    #[error("port {name}: port {other} has the socket {socket} too; each port needs its own")]
    TwoSockets {
        /// Name of the port that is defined second and repeats the socket.
        name: String,
        /// Path of the socket that both ports are configured with.
        socket: String,
        /// Name of the port that is defined first with this socket.
        other: String,
    },
    /// Two ports claim a resource that only one can have.
    #[error("port {name} and port {other} have {what}")]
    NotSole {
        /// Name of the port that is defined second and claims the resource again.
        name: String,
        /// Name of the port that is defined first and claims the resource.
        other: String,
        /// Describes the resource, and why it cannot be shared.
        what: String,
    },
    /// The file has too many ports; holds their number.
    #[error("{0} ports: must be at most {PORTS_MAX}")]
    Ports(usize),
    /// A field requires another field.
    #[error("{field} needs {needed}")]
    Needs {
        /// Name of the field that is present and requires another field.
        field: &'static str,
        /// Name of the field that is required and missing.
        needed: &'static str,
    },
}

/// An error about the table of an app, without the name of that table: the file of ports has none
/// of this name.
fn of_app(error: &GraphFileError) -> String {
    match error {
        GraphFileError::App { kind, reason, .. } => format!("{kind}: {reason}"),
        error => error.to_string(),
    }
}

/// The fault of a field with an invalid value.
pub(super) fn value(field: &str, found: &impl ToString, wanted: &str) -> Fault {
    Fault::Value {
        field: field.to_owned(),
        found: found.to_string(),
        wanted: wanted.to_owned(),
    }
}
