//! Names and classes of objects, and the messages that act on them.

use alloc::format;
use alloc::string::String;

use carina_cdap::{Message, Opcode, Party, Rules};

use super::values::{self, Naming};

/// Enrollment.
pub(super) const ENROLLMENT: &str = "/difm/enr";
/// Neighbours of a member.
pub(super) const NEIGHBOURS: &str = "/difm/enr/neighs";
/// Answers M_READ as long as the member lives.
pub(super) const WATCHDOG: &str = "/difm/enr/wd";
/// Whether a member is in operation.
pub(super) const STATUS: &str = "/difm/ops";
/// The directory.
pub(super) const DIRECTORY: &str = "/difm/nsm/dft";
/// Names that stand for several applications.
pub(super) const WHATEVERCAST: &str = "/difm/nsm/whatnms";
/// Constants of data transfer.
pub(super) const CONSTANTS: &str = "/dt";
/// The QoS cubes.
pub(super) const CUBES: &str = "/ra/qoscubes";
/// The link-state database.
pub(super) const LINKS: &str = "/ra/fsos";
/// Name and class of a message that passes members on its way.
pub(super) const A_DATA: &str = "a_data";
/// Name and class of a password's challenge.
pub(super) const CHALLENGE: &str = "challenge request";
/// Name and class of the reply to it.
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

/// Entity and instance of an IPCP in the names of a connection.
const ENTITY: &str = "Management";
/// Instance of every IPCP.
pub(super) const INSTANCE: &str = "1";

/// Results of answers.
pub(super) mod result {
    pub(in super::super) const SUCCESS: i32 = 0;
    pub(in super::super) const ERROR: i32 = -1;
    pub(in super::super) const INVALID_OBJECT: i32 = -2;
    pub(in super::super) const UNSUPPORTED: i32 = -4;
    pub(in super::super) const UNREADABLE: i32 = -5;
    pub(in super::super) const REJECTED: i32 = -6;
    /// No access rights: no other attempt will fare better.
    pub(in super::super) const ACCESS: i32 = -7;
}

/// Field rules of the dialect.
pub(super) const RULES: Rules = Rules::IRATI;

/// An IPCP as a party of a connection.
pub(super) fn party(name: &str) -> Party {
    Party {
        ap: name.into(),
        api: INSTANCE.into(),
        ae: ENTITY.into(),
        aei: String::new(),
    }
}

/// M_CONNECT from `own` to `other`.
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

/// A request about an object. Its invoke id is 0: it wants no answer.
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

/// A request whose answer is awaited before the next one: its invoke id is always the first.
pub(super) fn with_invoke_id(message: Message) -> Message {
    Message {
        invoke_id: FIRST_ID,
        ..message
    }
}

/// The smallest invoke id.
pub(super) const FIRST_ID: i32 = 1;

/// Name of the flow that the member at `address` asked for from its port `port`.
pub(super) fn flow(address: u64, port: u32) -> String {
    format!("{FLOW}{address}-{port}")
}

/// The key in a flow's name: address and port of its initiator.
pub(super) fn flow_key(name: &str) -> Option<(u64, u32)> {
    let (address, port) = name.strip_prefix(FLOW)?.split_once('-')?;
    Some((address.parse().ok()?, port.parse().ok()?))
}

/// Name of an entry of the directory.
pub(super) fn directory_entry(name: &Naming) -> String {
    format!("{DIRECTORY_ENTRY}{}", name.key())
}

/// The key in the name of a directory's entry.
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
