//! Names in four parts, and their text form, which the rest of this system uses as application
//! name.

use alloc::string::{String, ToString};
use core::fmt;

use carina_cdap::{Opcode, Party, Rules};
use carina_ipcp::layer::ConnectNames;

/// The name of an application process and one of its entities.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Application process name.
    pub(crate) ap: String,
    /// Application process instance.
    pub(crate) api: String,
    /// Application entity name.
    pub(crate) ae: String,
    /// Application entity instance.
    pub(crate) aei: String,
}

impl Name {
    /// Parses `ap|api|ae|aei`. Empty parts at the end and their bars may be missing. More than four
    /// parts: the rest belongs to the fourth.
    pub(crate) fn of(text: &str) -> Name {
        let mut parts = text.splitn(4, '|').map(ToString::to_string);
        let mut next = || parts.next().unwrap_or_default();
        Name {
            ap: next(),
            api: next(),
            ae: next(),
            aei: next(),
        }
    }
}

impl fmt::Display for Name {
    /// Writes `ap|api|ae|aei` without empty parts at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.ap, &self.api, &self.ae, &self.aei];
        let used = parts.iter().rposition(|part| !part.is_empty());
        for (index, part) in parts.iter().enumerate().take(used.map_or(0, |at| at + 1)) {
            if index > 0 {
                f.write_str("|")?;
            }
            f.write_str(part)?;
        }
        Ok(())
    }
}

/// The names of the two IPCPs in a management message, if it is an M_CONNECT of the dialect. The
/// application entities in it are not part of the names in the N-1 DIF.
pub(crate) fn of_connect(rules: &Rules, message: &[u8]) -> Option<ConnectNames> {
    let message = rules.decode(message).ok()?;
    let process = |party: Party| {
        let Party { ap, api, .. } = party;
        let name = Name {
            ap,
            api,
            ..Name::default()
        };
        name.to_string()
    };
    (message.opcode == Opcode::Connect).then(|| ConnectNames {
        calling: process(message.src),
        called: process(message.dst),
    })
}

impl From<Name> for Party {
    fn from(name: Name) -> Party {
        let Name { ap, api, ae, aei } = name;
        Party { ap, api, ae, aei }
    }
}

impl From<Party> for Name {
    fn from(party: Party) -> Name {
        let Party { ap, api, ae, aei } = party;
        Name { ap, api, ae, aei }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_parts_are_the_same_name() {
        for text in ["", "a", "a|1", "a||e", "a|1|e|2", "|1"] {
            assert_eq!(Name::of(text).to_string(), text);
        }
        assert_eq!(Name::of("a|||").to_string(), "a");
        assert_eq!(Name::of("a|b|c|d|e").aei, "d|e");
    }
}
