//! Identities of parties: a role and a name, proved by a certificate.
//!
//! A certificate has one DNS name, `NAME.ROLE.carina`, as its subject alternative name. A caller
//! verifies that the other side has the name of the role it means to reach, as browsers do (RFC
//! 9525). The called role reads the caller's name and grants it the rights of the caller's role.

use std::fmt;
use std::str::FromStr;

use carina_vnet::document::is_name;

/// What kind of party a certificate names: a provider, an operator, an agent or a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A physical infrastructure provider.
    Pip,
    /// A virtual network provider.
    Vnp,
    /// A virtual network operator.
    Vno,
    /// The agent of a host; its name is the host's.
    Agent,
    /// A person or program that controls the VNO or the PIP of the same name.
    Operator,
    /// A person to whom operators have granted some verbs on some networks.
    Delegate,
}

/// A party: a role with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The kind of the party.
    pub role: Role,
    /// The name, unique among the parties of the role.
    pub name: String,
}

/// Why a text does not name a party.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The role is unknown.
    #[error("`{0}` is not a role; roles are pip, vnp, vno, agent, operator and delegate")]
    Role(String),
    /// The name is not well-formed.
    #[error("`{0}` is not a name; a name has up to 32 of a to z, 0 to 9 and `-` (not at the ends)")]
    Name(String),
    /// The name in a certificate has another form.
    #[error("`{0}` is not a party; write NAME.ROLE.{DOMAIN}")]
    Form(String),
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 6] = [
        Role::Pip,
        Role::Vnp,
        Role::Vno,
        Role::Agent,
        Role::Operator,
        Role::Delegate,
    ];

    /// The keyword of the role in commands, files and certificates.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::Pip => "pip",
            Role::Vnp => "vnp",
            Role::Vno => "vno",
            Role::Agent => "agent",
            Role::Operator => "operator",
            Role::Delegate => "delegate",
        }
    }
}

impl Identity {
    /// The party with this role and name.
    ///
    /// # Errors
    /// The name is not well-formed.
    pub fn new(role: Role, name: &str) -> Result<Identity, IdentityError> {
        let has_capitals = name.chars().any(|c| c.is_ascii_uppercase());
        if is_name(name) && !has_capitals {
            Ok(Identity {
                role,
                name: name.to_owned(),
            })
        } else {
            Err(IdentityError::Name(name.chars().take(64).collect()))
        }
    }

    /// The DNS name in the party's certificate.
    #[must_use]
    pub fn domain(&self) -> String {
        format!("{}.{}.{DOMAIN}", self.name, self.role.word())
    }

    /// The party with this DNS name in its certificate.
    ///
    /// # Errors
    /// The name has another form.
    pub fn from_domain(text: &str) -> Result<Identity, IdentityError> {
        let wrong = || IdentityError::Form(text.chars().take(128).collect());
        let words: Vec<&str> = text.split('.').collect();
        let [name, role, DOMAIN] = words[..] else {
            return Err(wrong());
        };
        Identity::new(role.parse()?, name)
    }
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Role, IdentityError> {
        let found = Role::ALL.into_iter().find(|role| role.word() == text);
        found.ok_or_else(|| IdentityError::Role(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.name)
    }
}

/// The last label of the DNS names in certificates.
const DOMAIN: &str = "carina";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_certificates_are_read_back() {
        for role in Role::ALL {
            let party = Identity::new(role, "uk-1").unwrap();
            assert_eq!(Identity::from_domain(&party.domain()).unwrap(), party);
        }
        assert_eq!(
            Identity::new(Role::Pip, "uk").unwrap().domain(),
            "uk.pip.carina"
        );
    }

    #[test]
    fn other_names_are_refused() {
        for text in [
            "",
            "uk.pip",
            "uk.king.carina",
            "uk.pip.carina.org",
            "a.b.pip.carina",
            "*.pip.carina",
            ".pip.carina",
            "UK.pip.carina",
        ] {
            assert!(Identity::from_domain(text).is_err(), "{text}");
        }
        let error = Identity::new(Role::Vno, "Acme").unwrap_err().to_string();
        assert!(error.contains("a to z"), "{error}");
    }
}
