//! Errors in the specification of a member.

use std::io;

use carina_api::DifName;
use carina_protect::key::KeyError;
use thiserror::Error;

/// Why a `[[dif]]` table or a `carina dif` command is invalid, with the valid alternative.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemberSpecError {
    /// An error in the specification of one DIF, with the name of the DIF.
    #[error("DIF {dif}: {error}")]
    InDif {
        /// Name of the DIF with the error.
        dif: DifName,
        /// The error in the specification of that DIF.
        error: Box<MemberSpecError>,
    },
    /// `config` cannot be parsed.
    #[error("config: {0}")]
    Config(String),
    /// No N-1 DIF is given.
    #[error("`over` names no N-1 DIF")]
    NoN1Dif,
    /// An N-1 DIF is given twice.
    #[error("`over` names an N-1 DIF twice")]
    N1DifTwice,
    /// The DIF is given as its own N-1 DIF.
    #[error("a DIF is not its own N-1 DIF")]
    OwnN1Dif,
    /// `via` is set for the first member, which has no member to ask.
    #[error("`via` is for a member that joins; the first member creates the DIF and asks no other")]
    ViaOfFirst,
    /// The name of the IPCP is not well formed.
    #[error("{0}")]
    Name(String),
    /// The dialect does not support this kind of authentication.
    #[error("`auth` is {auth:?}; dialect {dialect} has {AUTH_OF_OTHERS}")]
    AuthOfDialect {
        /// The value of `auth`.
        auth: String,
        /// The DIF's dialect, which lacks this authentication.
        dialect: &'static str,
    },
    /// The text of `auth` has none of the valid forms.
    #[error(
        "auth = {0:?}; valid values are \"none\", password:FILE and ed25519:KEYFILE,ALLOWEDFILE"
    )]
    Auth(String),
    /// The password file cannot be read.
    #[error("password file {file}: {error}")]
    PasswordFile {
        /// Path of the password file that cannot be read.
        file: String,
        /// The reason of the operating system.
        error: io::Error,
    },
    /// The password file contains no password.
    #[error("password file {0} is empty")]
    EmptyPassword(String),
    /// A key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A member that joins has `config`, although it gets the configuration at enrollment.
    #[error(
        "`config` is for the first member; members that join learn it from the DIF (in the \
         dialects rlite and irati every member has its own)"
    )]
    ConfigOfJoining,
    /// A field of the PCI cannot have this width in this dialect.
    #[error("config: widths.{field} is {bytes}; in dialect {dialect} it is {possible}")]
    Width {
        /// Name of the field of the PCI with the wrong width.
        field: &'static str,
        /// The configured width in bytes.
        bytes: u8,
        /// The DIF's dialect, which does not allow this width.
        dialect: &'static str,
        /// The widths that the dialect allows for this field, as text.
        possible: String,
    },
    /// The widths are invalid in combination.
    #[error("config: widths: {what} in dialect {dialect}")]
    Widths {
        /// Why the widths are invalid in combination.
        what: String,
        /// The DIF's dialect, which does not allow these widths together.
        dialect: &'static str,
    },
    /// The named field is 0, and must not be 0.
    #[error("config: {0} is 0; it must be 1 or more")]
    Zero(&'static str),
    /// The dialect does not support concatenation.
    #[error("config: concatenation is true; in dialect {0} an SDU is a PDU: leave it out")]
    Concatenation(&'static str),
    /// A setting is given that the dialect does not have.
    #[error("config: {key}: dialect {dialect} does not support it; leave it out")]
    KeyOfOtherDialect {
        /// Name of the setting that the dialect does not have.
        key: &'static str,
        /// The DIF's dialect, which does not have this setting.
        dialect: &'static str,
    },
    /// A policy is given that the dialect does not have.
    #[error("config: policies.{component} is {name:?}; dialect {dialect} has {possible}")]
    Policy {
        /// Name of the component that has no such policy.
        component: &'static str,
        /// Name of the configured policy, which the dialect does not have.
        name: String,
        /// The DIF's dialect, which does not have this policy.
        dialect: &'static str,
        /// The policies that the dialect has for this component, as text.
        possible: String,
    },
    /// Native delimiting is configured in another dialect.
    #[error(
        "config: policies.{component} is \"standard\", which only native DIFs have; leave it out in \
         dialect {dialect}"
    )]
    StandardDelimiting {
        /// Name of the component for which `standard` is configured.
        component: &'static str,
        /// The DIF's dialect, which has no native delimiting.
        dialect: &'static str,
    },
    /// The state machine of the IPCP rejects the configuration, with this reason.
    #[error("{0}")]
    Ipcp(String),
}

impl MemberSpecError {
    /// Adds the name of the DIF to the error.
    pub fn of(self, dif: &DifName) -> MemberSpecError {
        MemberSpecError::InDif {
            dif: dif.clone(),
            error: Box::new(self),
        }
    }
}

/// The forms of `auth` in dialects other than native, for error messages.
const AUTH_OF_OTHERS: &str = "none (dialect irati also password:FILE)";
