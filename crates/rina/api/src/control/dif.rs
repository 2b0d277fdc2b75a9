//! Bodies that concern normal DIFs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{AppName, DifName, LocalName, PortId};

/// `POST /v1/difs`: makes an IPCP that creates or joins a normal DIF.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DifCreate {
    /// Name of the DIF.
    pub name: DifName,
    /// Whether the IPCP is the first member or asks one for admission.
    pub role: DifRole,
    /// The N-1 DIFs, of which this system must be a member.
    pub over: Vec<DifName>,
    /// Name of the IPCP: in this system, in the N-1 DIFs and in the DIF, where it must be unique;
    /// absent for `DIF.SYSTEM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipcp: Option<LocalName>,
    /// The member to ask; absent for any member that answers to the DIF's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<AppName>,
    /// Authentication between members: `KIND:FILE`, the same kind at all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// Dialect of the DIF, the same at all members.
    #[serde(default, skip_serializing_if = "Dialect::is_native")]
    pub dialect: Dialect,
    /// What all members agree on, as in `docs/reference/configuration.md`; for the first member
    /// only, except in [`Dialect::Irati`], where every member has its own. What it does not say is
    /// as usual in the dialect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

/// `POST /v1/difs/{name}/over`: a member of this system gets another N-1 DIF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DifExtend {
    /// The N-1 DIF, of which this system must be a member.
    pub over: DifName,
    /// The member to ask there; absent for the one that was given when this one was made, else
    /// any member that answers to the DIF's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<AppName>,
    /// Name of the IPCP, where this system has several members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipcp: Option<LocalName>,
}

/// What the members of a normal DIF speak: the layout of their PDUs and all layer management.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Carina's own.
    #[default]
    Native,
    /// That of rlite.
    Rlite,
    /// That of IRATI.
    Irati,
}

impl Dialect {
    /// Whether it is Carina's own.
    #[must_use]
    pub fn is_native(&self) -> bool {
        *self == Dialect::Native
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Native => "native",
            Dialect::Rlite => "rlite",
            Dialect::Irati => "irati",
        }
    }
}

/// A text that is the name of no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("dialect {0:?} is unknown; valid values are native, rlite and irati")]
pub struct UnknownDialect(pub String);

/// By its name, as on a command line.
impl std::str::FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Dialect, UnknownDialect> {
        match text {
            "native" => Ok(Dialect::Native),
            "rlite" => Ok(Dialect::Rlite),
            "irati" => Ok(Dialect::Irati),
            other => Err(UnknownDialect(other.to_owned())),
        }
    }
}

/// What an IPCP does when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifRole {
    /// It is the first member.
    Create,
    /// It asks a member for admission.
    Join,
}

/// A member of a normal DIF, in this system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// What it was made for.
    pub role: DifRole,
    /// What it speaks.
    #[serde(default)]
    pub dialect: Dialect,
    /// Its N-1 DIFs.
    pub over: Vec<DifName>,
    /// How far it is.
    pub state: MemberState,
    /// What it does or waits for, in words.
    pub step: String,
    /// Attempts to join that failed.
    pub failures: u32,
    /// Why the last attempt to join failed.
    #[serde(default)]
    pub last_error: Option<String>,
    /// It was refused through every N-1 DIF for a reason that time does not change: credentials,
    /// an access rule, a name that is taken, constants that do not fit. It goes on asking, rarely.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// Its address, when it is enrolled.
    #[serde(default)]
    pub address: Option<u64>,
    /// Its neighbours in the DIF.
    pub neighbours: Vec<AppName>,
    /// Its N-1 flows, those it still tries to get among them.
    pub n1: Vec<N1Info>,
}

/// How far a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// It tries to join.
    Joining,
    /// It is a member.
    Enrolled,
    /// It was a member and has left.
    Left,
}

/// An N-1 flow of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1Info {
    /// The N-1 DIF.
    pub dif: DifName,
    /// The name that was asked for, or that asked.
    pub remote: AppName,
    /// The neighbour that was found there.
    #[serde(default)]
    pub neighbour: Option<AppName>,
    /// The flow, unless it is only wanted.
    #[serde(default)]
    pub port: Option<PortId>,
    /// Its state.
    pub state: N1State,
    /// Why it is not up, when a reason is known. For a flow that is up and leads to no neighbour:
    /// for how long.
    #[serde(default)]
    pub reason: Option<String>,
}

/// State of an N-1 flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum N1State {
    /// Of no use: the N-1 DIF does not carry the longest PDU of the DIF.
    Refused,
    /// Asked for again after a pause.
    Wanted,
    /// Asked for.
    Allocating,
    /// There.
    Up,
}

/// `GET /v1/rib`: an object of an IPCP's RIB.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RibObject {
    /// Its name, a path.
    pub path: String,
    /// Its class.
    pub class: String,
    /// Its fields.
    pub fields: BTreeMap<String, Value>,
}

impl RibObject {
    /// The name that the object's path ends with, where the rest of it is `parent`, which ends with
    /// `/`. In paths `/` and `%` of names are written `%2F` and `%25`.
    #[must_use]
    pub fn name_below(&self, parent: &str) -> Option<String> {
        let name = self.path.strip_prefix(parent)?;
        Some(name.replace("%2F", "/").replace("%25", "%"))
    }
}

/// `POST /v1/rib`: sets fields of an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RibWrite {
    /// The DIF; absent when this system has one normal DIF only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<DifName>,
    /// The member, by name or address; absent for that of this system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Name of the object.
    pub path: String,
    /// Fields to set: numbers, texts, booleans or lists of texts.
    pub fields: BTreeMap<String, Value>,
}

/// `GET /v1/policies`: the policies that DIFs of a dialect can have, and those in force in a DIF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    /// Every policy, by component; the first of a component is its default.
    pub policies: Vec<PolicyInfo>,
    /// Those in force, when a DIF was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_force: Vec<PolicyInForce>,
}

/// A policy of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInfo {
    /// The component that it is for.
    pub component: String,
    /// Its name.
    pub name: String,
    /// What it does.
    pub help: String,
    /// It may be changed while the DIF runs.
    pub live: bool,
    /// Its parameters.
    pub params: Vec<ParamInfo>,
}

/// A parameter of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamInfo {
    /// Its name.
    pub name: String,
    /// Its default.
    pub default: String,
    /// What it does, with unit and range.
    pub help: String,
}

/// The policy of a component that a DIF uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// The component.
    pub component: String,
    /// The policy.
    pub name: String,
    /// Its parameters.
    pub params: BTreeMap<String, String>,
}
