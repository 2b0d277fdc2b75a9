//! What is wrong in a file, and on which line.

use carina_apps::graph_file::GraphFileError;
use carina_filter::FilterError;
use carina_wire::ether::Mac;

use super::PORTS_MAX;
use super::lua::LuaReason;

/// A value and its line, from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At<T> {
    /// The line.
    pub line: usize,
    /// The value.
    pub value: T,
}

impl<T> At<T> {
    /// The same line with another value.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At {
            line: self.line,
            value: change(self.value),
        }
    }

    /// What is wrong with the value.
    pub(super) fn is_wrong(&self, fault: Fault) -> FileError {
        FileError {
            line: self.line,
            fault,
        }
    }
}

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct FileError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is not TOML, or a field is not known or of another type.
    #[error("{0}")]
    Toml(String),
    /// It is no table of Lua.
    #[error(transparent)]
    Lua(LuaReason),
    /// A field has another type of value.
    #[error("{field} is {found}: {wanted} would be right")]
    Type {
        /// The field.
        field: String,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A field that does not exist.
    #[error("{field}: there is no such field here; there are {known}")]
    Unknown {
        /// The field.
        field: String,
        /// The fields that there are.
        known: String,
    },
    /// A field that must be there.
    #[error("{field} is missing here: {wanted}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What would be right.
        wanted: &'static str,
    },
    /// The text of a field.
    #[error("{field} = {found:?}: {wanted}")]
    Value {
        /// The field.
        field: String,
        /// What is there.
        found: String,
        /// What would be right.
        wanted: String,
    },
    /// A filter is not one.
    #[error("{field}: {error}")]
    Filter {
        /// The field.
        field: &'static str,
        /// What is wrong.
        error: FilterError,
    },
    /// An app's configuration.
    #[error(transparent)]
    App(#[from] GraphFileError),
    /// Two ports have the same name, or names with the same stem.
    #[error("port {name}: line {other} has a port of this name already")]
    TwoNames {
        /// The name.
        name: String,
        /// The line of the other.
        other: usize,
    },
    /// Two ports have the same address.
    #[error(
        "port {name}: mac = {mac}: port {other} has this address too, in the same VLAN; each \
         station has its own"
    )]
    TwoAddresses {
        /// The port.
        name: String,
        /// The address.
        mac: Mac,
        /// The other port.
        other: String,
    },
    /// Two ports have the same socket.
    #[error("port {name}: socket {socket} is that of port {other} too")]
    TwoSockets {
        /// The port.
        name: String,
        /// The path.
        socket: String,
        /// The other port.
        other: String,
    },
    /// Two ports have what only one can have.
    #[error("port {name} and port {other} have {what}")]
    NotSole {
        /// The port.
        name: String,
        /// The port before it.
        other: String,
        /// What both have, and why they cannot.
        what: String,
    },
    /// There are more ports than the process has.
    #[error("{0} ports: at most {PORTS_MAX} are possible")]
    Ports(usize),
    /// A field needs another one.
    #[error("{field} needs {needed}")]
    Needs {
        /// The field.
        field: &'static str,
        /// The other.
        needed: &'static str,
    },
}

/// The fault of a value.
pub(super) fn value(field: &str, found: &impl ToString, wanted: &str) -> Fault {
    Fault::Value {
        field: field.to_owned(),
        found: found.to_string(),
        wanted: wanted.to_owned(),
    }
}
