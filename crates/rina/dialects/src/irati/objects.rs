//! Names and classes of objects, and the messages that operate on them.

use alloc::format;
use alloc::string::String;

use carina_cdap::{Message, Opcode, Party, Rules};

use super::values::{self, Naming};

/// Object of the enrollment procedure.
pub(super) const ENROLLMENT: &str = "/difm/enr";
/// Neighbours of a member.
pub(super) const NEIGHBOURS: &str = "/difm/enr/neighs";
/// Keep-alive object: every running member answers M_READ of it.
pub(super) const WATCHDOG: &str = "/difm/enr/wd";
/// Operational status of a member.
pub(super) const STATUS: &str = "/difm/ops";
/// The directory.
pub(super) const DIRECTORY: &str = "/difm/nsm/dft";
/// Whatevercast names.
pub(super) const WHATEVERCAST: &str = "/difm/nsm/whatnms";
/// Constants of data transfer.
pub(super) const CONSTANTS: &str = "/dt";
/// The QoS cubes.
pub(super) const CUBES: &str = "/ra/qoscubes";
/// The link-state database.
pub(super) const LINKS: &str = "/ra/fsos";
/// Name and class of A-DATA, a message that members forward.
pub(super) const A_DATA: &str = "a_data";
/// Name and class of the challenge of password authentication.
pub(super) const CHALLENGE: &str = "challenge request";
/// Name and class of the reply to the challenge.
pub(super) const CHALLENGE_REPLY: &str = "challenge reply";

const FLOW: &str = "/fa/flows/key=";
const DIRECTORY_ENTRY: &str = "/difm/nsm/dft/key=";

/// Classes of objects.
pub(super) mod class {
    pub(in super::super) const ENROLLMENT: &str = "Enrollment";
    pub(in super::super) const NEIGHBOURS: &str = "Neighbors";
    pub(in super::super) const STATUS: &str = "OperationalStatus";
    pub(in super::super) const DIRECTORY: &str = "DirectoryForwardingTable";
    pub(in super::super) const DIRECTORY_ENTRY: &str = "DirectoryForwardingTableEntry";
    pub(in super::super) const CONSTANTS: &str = "DataTransfer";
    pub(in super::super) const CUBES: &str = "QoSCubes";
    pub(in super::super) const LINKS: &str = "FlowStateObjects";
    pub(in super::super) const WATCHDOG: &str = "watchdog_timer";
    pub(in super::super) const FLOW: &str = "Flow";
}

/// Application entity of an IPCP in the names of a connection.
const ENTITY: &str = "Management";
/// Application process instance of every IPCP.
pub(super) const INSTANCE: &str = "1";

/// Result codes of answers.
pub(super) mod result {
    pub(in super::super) const SUCCESS: i32 = 0;
    pub(in super::super) const ERROR: i32 = -1;
    pub(in super::super) const INVALID_OBJECT: i32 = -2;
    pub(in super::super) const UNSUPPORTED: i32 = -4;
    pub(in super::super) const UNREADABLE: i32 = -5;
    pub(in super::super) const REJECTED: i32 = -6;
    /// The IPCP has no access rights. Another attempt fails as well, until the rights change.
    pub(in super::super) const ACCESS: i32 = -7;
}

/// Rules for CDAP fields in this dialect.
pub(super) const RULES: Rules = Rules::IRATI;

/// An IPCP as a party of a connection, by its name.
pub(super) fn party(name: &str) -> Party {
    Party {
        ap: name.into(),
        api: INSTANCE.into(),
        ae: ENTITY.into(),
        aei: String::new(),
    }
}

/// Makes the M_CONNECT from `own` to `other`.
pub(super) fn connect(own: &str, other: &str) -> Message {
    Message {
        invoke_id: FIRST_ID,
        abstract_syntax: RULES.abstract_syntax,
        version: RULES.version,
        src: party(own),
        dst: party(other),
        ..Message::new(Opcode::Connect)
    }
}

/// Makes a request about an object. Its invoke id is 0: it expects no answer.
pub(super) fn request(
    opcode: Opcode,
    class: &str,
    name: &str,
    value: &impl prost::Message,
) -> Message {
    Message {
        value: Some(values::value(value)),
        ..Message::object(opcode, class, name)
    }
}

/// Makes a request expect an answer. The next such request waits for it, so all have the same
/// invoke id.
pub(super) fn with_invoke_id(message: Message) -> Message {
    Message {
        invoke_id: FIRST_ID,
        ..message
    }
}

/// The smallest invoke id.
pub(super) const FIRST_ID: i32 = 1;

/// Name of the flow that the member at `address` requested from its port-id `port`.
pub(super) fn flow(address: u64, port: u32) -> String {
    format!("{FLOW}{address}-{port}")
}

/// Parses a flow's name: address and port-id of its initiator.
pub(super) fn flow_key(name: &str) -> Option<(u64, u32)> {
    let (address, port) = name.strip_prefix(FLOW)?.split_once('-')?;
    Some((address.parse().ok()?, port.parse().ok()?))
}

/// Object name of a directory entry.
pub(super) fn directory_entry(name: &Naming) -> String {
    format!("{DIRECTORY_ENTRY}{}", name.key())
}

/// The key in the object name of a directory entry.
pub(super) fn directory_key(name: &str) -> Option<&str> {
    name.strip_prefix(DIRECTORY_ENTRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_flows_are_read_and_written() {
        assert_eq!(flow(17, 2), "/fa/flows/key=17-2");
        assert_eq!(flow_key("/fa/flows/key=17-2"), Some((17, 2)));
        assert_eq!(flow_key("/fa/flows/key=17"), None);
        assert_eq!(flow_key("/fa/flows/key=-17-2"), None);
    }
}
