//! Why a member cannot be made as it is asked for.

use std::io;

use carina_api::DifName;
use carina_protect::key::KeyError;
use thiserror::Error;

use super::dialect::AUTH_OF_OTHERS;

/// What is wrong with a `[[dif]]` or a `carina dif` command, and what would be right.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemberSpecError {
    /// The error of the member of that DIF.
    #[error("DIF {dif}: {error}")]
    Of {
        /// The DIF.
        dif: DifName,
        /// What is wrong.
        error: Box<MemberSpecError>,
    },
    /// `config` cannot be read.
    #[error("config: {0}")]
    Config(String),
    /// No N-1 DIF is named.
    #[error("`over` names no N-1 DIF")]
    NoN1Dif,
    /// An N-1 DIF is named twice.
    #[error("`over` names an N-1 DIF twice")]
    N1DifTwice,
    /// The DIF is named as its own N-1 DIF.
    #[error("a DIF is not its own N-1 DIF")]
    OwnN1Dif,
    /// The first member names a member to ask.
    #[error("`via` is for a member that joins; the first member creates the DIF and asks no other")]
    ViaOfFirst,
    /// The name of the IPCP is not well formed.
    #[error("{0}")]
    Name(String),
    /// Members of this dialect do not authenticate in that way.
    #[error("`auth` is {auth:?}; dialect {dialect} has {AUTH_OF_OTHERS}")]
    AuthOfDialect {
        /// What was asked for.
        auth: String,
        /// The dialect.
        dialect: &'static str,
    },
    /// `auth` names no way to authenticate.
    #[error(
        "auth = {0:?}; valid values are \"none\", password:FILE and ed25519:KEYFILE,ALLOWEDFILE"
    )]
    Auth(String),
    /// The file of the password cannot be read.
    #[error("password file {file}: {error}")]
    PasswordFile {
        /// The file.
        file: String,
        /// The system's reason.
        error: io::Error,
    },
    /// The file of the password holds none.
    #[error("password file {0} is empty")]
    EmptyPassword(String),
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A member that joins has a configuration of the DIF.
    #[error(
        "`config` is for the first member; those that join learn it (in the dialects rlite and \
         irati every member has its own)"
    )]
    ConfigOfJoining,
    /// A field of the PCI cannot have this width.
    #[error("config: widths.{field} is {bytes}; in dialect {dialect} it is {possible}")]
    Width {
        /// The field.
        field: &'static str,
        /// Its width in bytes.
        bytes: u8,
        /// The dialect.
        dialect: &'static str,
        /// The widths that it can have.
        possible: String,
    },
    /// The widths do not fit together.
    #[error("config: widths: {what} in dialect {dialect}")]
    Widths {
        /// What is wrong.
        what: String,
        /// The dialect.
        dialect: &'static str,
    },
    /// A number must not be 0.
    #[error("config: {0} is 0; it must be 1 or more")]
    Zero(&'static str),
    /// Members of this dialect do not concatenate.
    #[error("config: concatenation is true; in dialect {0} an SDU is a PDU: leave it out")]
    Concatenation(&'static str),
    /// Members of this dialect do not have this setting.
    #[error("config: {key}: dialect {dialect} does not support it; leave it out")]
    KeyOfOtherDialect {
        /// The setting.
        key: &'static str,
        /// The dialect.
        dialect: &'static str,
    },
    /// Members of this dialect do not have this policy.
    #[error("config: policies.{component} is {name:?}; dialect {dialect} has {possible}")]
    Policy {
        /// The component.
        component: &'static str,
        /// The policy asked for.
        name: String,
        /// The dialect.
        dialect: &'static str,
        /// The policies that there are.
        possible: String,
    },
    /// Delimiting of native DIFs is asked for in another dialect.
    #[error(
        "config: policies.{component} is \"standard\", which only native DIFs have; leave it out in \
         dialect {dialect}"
    )]
    StandardDelimiting {
        /// The component.
        component: &'static str,
        /// The dialect.
        dialect: &'static str,
    },
    /// The IPCP itself refuses the configuration.
    #[error("{0}")]
    Ipcp(String),
}

impl MemberSpecError {
    /// The error with the name of the DIF.
    pub fn of(self, dif: &DifName) -> MemberSpecError {
        MemberSpecError::Of {
            dif: dif.clone(),
            error: Box::new(self),
        }
    }
}
