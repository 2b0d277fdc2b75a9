//! Reading the RIB of a simulated IPCP.

use carina_ipcp::Command;
use carina_ipcp::api::{RibObject, RibOp, Scalar};
use std::fmt;

use crate::model::SlotId;
use crate::world::World;

/// Why a RIB cannot be read, or contains something that a simulation does not understand.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RibError {
    /// The IPCP with this name is dead or does not answer.
    NoAnswer(String),
    /// The IPCP refuses, for this reason.
    Refused(String),
    /// An object does not have a field that the simulation reads.
    NoField {
        /// The object as the IPCP returned it.
        object: RibObject,
        /// Name of the missing field.
        name: String,
    },
    /// A field has a value of an unexpected kind.
    Unexpected {
        /// Path of the RIB object that has the field.
        path: String,
        /// Name of the field with the unexpected value.
        name: String,
        /// The value of the field.
        value: Scalar,
    },
    /// The text is not an address.
    NotAnAddress(String),
    /// The text is not two addresses with `-` between them.
    NotALink(String),
}

impl std::error::Error for RibError {}

impl fmt::Display for RibError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer(name) => write!(f, "{name} does not answer"),
            Self::Refused(reason) => f.write_str(reason),
            Self::NoField { object, name } => write!(
                f,
                "{} has no field {name}: {:?}",
                object.path, object.fields
            ),
            Self::Unexpected { path, name, value } => write!(f, "{path} {name} is {value:?}"),
            Self::NotAnAddress(text) => write!(f, "no address: {text}"),
            Self::NotALink(text) => write!(f, "no link: {text}"),
        }
    }
}

impl World {
    /// Reads a member's RIB, in no virtual time.
    ///
    /// # Errors
    /// The IPCP is dead, does not answer, or answers with an error.
    pub fn read_rib(
        &mut self,
        slot: SlotId,
        path: &str,
        scope: u32,
    ) -> Result<Vec<RibObject>, RibError> {
        let id = self.next_answer;
        self.next_answer += 1;
        let op = RibOp::Read {
            path: path.to_owned(),
            scope,
            filter: String::new(),
        };
        self.command(
            slot,
            Command::Rib {
                id,
                member: None,
                op,
            },
        );
        self.process_pending();
        match self.answers.remove(&id) {
            Some(answer) => answer.map_err(|reason| RibError::Refused(reason.into())),
            None => Err(RibError::NoAnswer(self.name(slot).to_owned())),
        }
    }
}
