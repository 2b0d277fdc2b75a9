//! Who speaks: a role and its name, as a certificate says them.
//!
//! A certificate has one DNS name, `NAME.ROLE.carina`, as its subject alternative name. Who calls
//! looks for the name of the role that it means to reach, as browsers do (RFC 9525); who is called
//! reads the caller's name and gives it the rights of that role.

use std::fmt;
use std::str::FromStr;

use carina_vnet::document::is_name;

/// A kind of party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A physical infrastructure provider.
    Pip,
    /// A virtual network provider.
    Vnp,
    /// A virtual network operator.
    Vno,
    /// The agent of a host, which has the host's name.
    Agent,
    /// A person or a program that gives orders to the VNO of the same name.
    Operator,
    /// Someone whom operators let do some things with some networks.
    Delegate,
}

/// A party.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// What it is.
    pub role: Role,
    /// Its name among those of its kind.
    pub name: String,
}

/// A text that names no party.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The role is unknown.
    #[error("`{0}` is not a role; roles are pip, vnp, vno, agent, operator and delegate")]
    Role(String),
    /// The name cannot be one.
    #[error("`{0}` is not a name; one has up to 32 of a to z, 0 to 9 and `-` inside")]
    Name(String),
    /// The name in a certificate has another form.
    #[error("`{0}` is not NAME.ROLE.{DOMAIN}")]
    Form(String),
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 6] = [
        Role::Pip,
        Role::Vnp,
        Role::Vno,
        Role::Agent,
        Role::Operator,
        Role::Delegate,
    ];

    /// The word for it in commands, files and certificates.
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
    /// A party of this name.
    ///
    /// # Errors
    /// The name cannot be one.
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

    /// The name in its certificate.
    #[must_use]
    pub fn domain(&self) -> String {
        format!("{}.{}.{DOMAIN}", self.name, self.role.word())
    }

    /// The party with this name in its certificate.
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

/// The last label of the names in certificates.
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
