//! Bodies of requests about normal DIFs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{AppName, DifName, LocalName, PortId};

/// Body of `POST /v1/difs`: creates an IPCP that creates or joins a normal DIF.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DifCreate {
    /// Name of the DIF to create or join.
    pub name: DifName,
    /// Whether the IPCP creates the DIF as its first member, or asks a member for admission.
    pub role: DifRole,
    /// Names of the N-1 DIFs. This system must be a member of each.
    pub over: Vec<DifName>,
    /// Name of the IPCP on this system, in the N-1 DIFs and in the DIF, where it must be unique.
    /// Default: `DIF.SYSTEM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipcp: Option<LocalName>,
    /// Name of the member to ask for admission. Default: any member that answers to the DIF's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<AppName>,
    /// Authentication between members, as `KIND:FILE`. All members must use the same kind. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// Dialect of the DIF, the same for all members.
    #[serde(default, skip_serializing_if = "Dialect::is_native")]
    pub dialect: Dialect,
    /// Parameters of the DIF, as in `docs/reference/configuration.md`. In [`Dialect::Native`] only
    /// the first member may have them; in [`Dialect::Rlite`] and [`Dialect::Irati`] a joining
    /// member may have them too. Absent parameters have the defaults of the dialect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

/// Body of `POST /v1/difs/{name}/over`: adds an N-1 DIF to a member of this system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DifExtend {
    /// Name of the N-1 DIF, of which this system must be a member.
    pub over: DifName,
    /// Name of the member to ask in that N-1 DIF. Default: the `via` with which this IPCP was
    /// created, otherwise any member that answers to the DIF's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<AppName>,
    /// Name of the member's IPCP. Default: the only member of the DIF that this system has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipcp: Option<LocalName>,
}

/// The dialect of a normal DIF: the layout of its PDUs and its layer management protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// `native`: Carina's own dialect.
    #[default]
    Native,
    /// `rlite`: the dialect of rlite's kernel modules.
    Rlite,
    /// `irati`: the dialect of the IRATI stack.
    Irati,
}

impl Dialect {
    /// Whether this is Carina's own dialect.
    #[must_use]
    pub fn is_native(&self) -> bool {
        *self == Dialect::Native
    }

    /// Name of the dialect, as configurations and command lines write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Native => "native",
            Dialect::Rlite => "rlite",
            Dialect::Irati => "irati",
        }
    }
}

/// Error: this text is not the name of a dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("dialect {0:?} is unknown; valid values are native, rlite and irati")]
pub struct UnknownDialect(pub String);

/// Parses the name of a dialect.
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

/// How an IPCP becomes a member of its DIF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifRole {
    /// The IPCP creates the DIF and is its first member.
    Create,
    /// The IPCP asks a member of the DIF for admission.
    Join,
}

/// State of the IPCP by which this system is, or wants to be, a member of a normal DIF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Whether the IPCP was made to create or to join the DIF.
    pub role: DifRole,
    /// Dialect of the protocols that all members of the DIF use.
    #[serde(default)]
    pub dialect: Dialect,
    /// Names of the member's N-1 DIFs.
    pub over: Vec<DifName>,
    /// Whether the IPCP is joining, enrolled, or has left.
    pub state: MemberState,
    /// What the IPCP does or waits for now, as text for people.
    pub step: String,
    /// Number of failed attempts to join since the IPCP was created.
    pub failures: u32,
    /// Why the last attempt to join failed; `None` if no attempt has failed.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Every N-1 DIF gave a refusal that waiting does not cure: wrong credentials, an access rule,
    /// a name that is taken, or constants that do not match. The IPCP still retries, at long
    /// intervals.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// Address of the member in the DIF; `None` while it is not enrolled.
    #[serde(default)]
    pub address: Option<u64>,
    /// Names of the member's neighbours in the DIF.
    pub neighbours: Vec<AppName>,
    /// N-1 flows of the member, including those that it still tries to allocate.
    pub n1: Vec<N1Info>,
}

/// Progress of an IPCP's membership in its DIF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// The IPCP tries to join.
    Joining,
    /// The IPCP is a member.
    Enrolled,
    /// The IPCP was a member and has left.
    Left,
}

/// State of one N-1 flow of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1Info {
    /// Name of the N-1 DIF that provides the flow.
    pub dif: DifName,
    /// The application name at the other end: the name to which the flow was allocated, or the name
    /// of the IPCP that allocated it.
    pub remote: AppName,
    /// Name of the neighbour at the other end; `None` until the member knows it.
    #[serde(default)]
    pub neighbour: Option<AppName>,
    /// Port-id of the flow on this system; `None` while there is no flow.
    #[serde(default)]
    pub port: Option<PortId>,
    /// State of the flow: usable, requested, waiting for a retry, or refused.
    pub state: N1State,
    /// Why the flow is not up, if the reason is known. For a flow that is up but leads to no
    /// neighbour: for how long that has been so. `None` otherwise.
    #[serde(default)]
    pub reason: Option<String>,
}

/// State of an N-1 flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum N1State {
    /// The flow cannot be used: the N-1 DIF does not carry the longest PDU of the DIF.
    Refused,
    /// There is no flow; the member requests it again after a pause.
    Wanted,
    /// The member has requested the flow and waits for the answer.
    Allocating,
    /// The flow exists, although there may be no neighbour behind it yet.
    Up,
}

/// An entry of the response of `GET /v1/rib`: one object of an IPCP's RIB.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RibObject {
    /// Path of the object in the RIB, which is its name.
    pub path: String,
    /// Class of the object: the kind of thing that it describes.
    pub class: String,
    /// Fields of the object, as names and values.
    pub fields: BTreeMap<String, Value>,
}

impl RibObject {
    /// Returns the last part of the object's path if the rest is `parent`, which must end with `/`;
    /// otherwise `None`. The escapes `%2F` and `%25` of the path become `/` and `%`.
    #[must_use]
    pub fn name_below(&self, parent: &str) -> Option<String> {
        let name = self.path.strip_prefix(parent)?;
        Some(name.replace("%2F", "/").replace("%25", "%"))
    }
}

/// Body of `POST /v1/rib`: sets fields of a RIB object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RibWrite {
    /// Name of the DIF; may be absent when this system has one normal DIF only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<DifName>,
    /// The member whose RIB is changed, by name or address. Default: the member of this system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Path of the object whose fields are set.
    pub path: String,
    /// Fields to set, as names and new values. A value is a number, a text, a boolean or a list of
    /// texts.
    pub fields: BTreeMap<String, Value>,
}

/// Response of `GET /v1/policies`: the policies that DIFs of a dialect can use, and the policies
/// that one DIF uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    /// Every policy, grouped by component. The first policy of a component is its default.
    pub policies: Vec<PolicyInfo>,
    /// The policies that the DIF uses; empty when the request names no DIF.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_force: Vec<PolicyInForce>,
}

/// A policy that DIFs can use: its component, name, help and parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInfo {
    /// Name of the component to which the policy belongs, such as `routing`.
    pub component: String,
    /// Name of the policy, such as `link-state`.
    pub name: String,
    /// What the policy does, as text for people.
    pub help: String,
    /// Whether the policy may be changed while the DIF runs.
    pub live: bool,
    /// The parameters that the policy accepts, each with its default value.
    pub params: Vec<ParamInfo>,
}

/// A parameter that a policy accepts: name, default and meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamInfo {
    /// Name of the parameter, as in `COMPONENT=NAME,PARAM=VALUE`.
    pub name: String,
    /// Value of the parameter if the configuration does not set it.
    pub default: String,
    /// What the parameter does, with unit and range.
    pub help: String,
}

/// The policy that a DIF uses for one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// Name of the component, such as `routing`.
    pub component: String,
    /// Name of the policy that the DIF uses for the component.
    pub name: String,
    /// Values of the policy's parameters now, by parameter name.
    pub params: BTreeMap<String, String>,
}
