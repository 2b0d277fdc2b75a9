//! Checks the DIFs of a topology with the nodes' own checks, before anything is made.

use carina_api::control::{Dialect, DifCreate, DifRole};
use carina_api::{DifName, LocalName};
use carina_ipcp::policy::component::ADDRESS_ASSIGNMENT;
use serde_json::Value;

use super::config::{member_config, node_config};
use super::token::error_at;
use super::{Dif, Topology, TopologyError};

/// Checks of the node that would run a topology; the topology must pass them. An error is one line
/// for the user, without a position in a file.
pub trait NodeChecks {
    /// Checks the configuration of a node, in TOML, with the checks of the node's start.
    ///
    /// # Errors
    /// What the node would refuse, and what would be right.
    fn check_node(&self, config: &str) -> Result<(), String>;

    /// Checks a member of a normal DIF on the system called `system`.
    ///
    /// # Errors
    /// What the node would refuse, and what would be right.
    fn check_member(&self, create: DifCreate, system: &str) -> Result<(), String>;

    /// Checks the credential files that `auth` names.
    ///
    /// # Errors
    /// The first file that the node could not use.
    fn check_credentials(&self, auth: &str) -> Result<(), String>;
}

impl Topology {
    /// Checks the credential files of the DIFs' members.
    ///
    /// # Errors
    /// A node could not use a file; the error is at the line that names the first such file.
    pub fn check_credentials(&self, checks: &dyn NodeChecks) -> Result<(), TopologyError> {
        for dif in &self.difs {
            let Some(auth) = &dif.auth else { continue };
            checks.check_credentials(auth).map_err(|what| {
                error_at(dif.place_of(&["auth"]), format!("DIF {}: {what}", dif.name))
            })?;
        }
        Ok(())
    }
}

/// Checks the configurations of the nodes with the checks of their start. Credentials are checked
/// by [`Topology::check_credentials`].
///
/// # Errors
/// A node would not start: names the first such system, and the reason.
pub(super) fn check_nodes(
    topology: &Topology,
    checks: &dyn NodeChecks,
) -> Result<(), TopologyError> {
    let difs: Vec<&Dif> = topology.difs.iter().collect();
    for system in &topology.systems {
        let text = node_config(topology, &system.name, &difs, |_| "none".to_owned());
        checks
            .check_node(&text)
            .map_err(|what| error_at(system.at, format!("system {}: {what}", system.name)))?;
    }
    Ok(())
}

/// Checks the configuration of a DIF.
///
/// # Errors
/// What a node would refuse, at the last line without which the node would accept the rest.
pub(super) fn check_dif(dif: &Dif, checks: &dyn NodeChecks) -> Result<(), TopologyError> {
    check_addresses(dif)?;
    let Err(what) = check_members(dif, None, checks) else {
        return Ok(());
    };
    let is_to_blame = |path: &&Vec<String>| check_members(dif, Some(path), checks).is_ok();
    let mut paths = dif.places.iter().rev().map(|(path, _)| path);
    let path = paths.find(is_to_blame);
    let at = match path {
        Some(path) => dif.place_of(&path.iter().map(String::as_str).collect::<Vec<_>>()),
        None => dif.at,
    };
    Err(error_at(at, what))
}

/// Checks the addresses of members in a DIF where they are configured. A member without one has
/// address 1.
fn check_addresses(dif: &Dif) -> Result<(), TopologyError> {
    let policy = dif.config.policies.get(ADDRESS_ASSIGNMENT);
    let is_static = policy.is_some_and(|spec| spec.name == "static");
    if dif.dialect != Dialect::Rlite || !is_static {
        let with_one = dif.members.iter().find(|member| member.address.is_some());
        return match with_one {
            None => Ok(()),
            Some(member) => Err(error_at(
                member.at,
                format!(
                    "DIF {} assigns addresses itself; to configure them, use dialect=rlite and \
                     `policy {0} addralloc static`",
                    dif.name
                ),
            )),
        };
    }
    for (place, member) in dif.members.iter().enumerate() {
        let address = member.address.unwrap_or(1);
        let before = dif.members[..place].iter();
        if let Some(other) = before
            .into_iter()
            .find(|candidate| candidate.address.unwrap_or(1) == address)
        {
            return Err(error_at(
                member.at,
                format!(
                    "{} and {} have the same address {address} in DIF {}; set another with \
                     address=NUMBER",
                    other.system, member.system, dif.name
                ),
            ));
        }
    }
    Ok(())
}

/// Runs the node's own check on each member that has a configuration of its own. Leaves out the
/// value at path `without`.
fn check_members(
    dif: &Dif,
    without: Option<&[String]>,
    checks: &dyn NodeChecks,
) -> Result<(), String> {
    for (place, member) in dif.members.iter().enumerate() {
        let Some(mut config) = member_config(dif, place) else {
            continue;
        };
        let is_auth = |path: &[String]| path == ["auth"];
        let auth = dif.auth.clone().filter(|_| !without.is_some_and(is_auth));
        if let Some(path) = without {
            remove(&mut config, path);
        }
        let name = |text: &str| DifName::new(text).map_err(|error| error.to_string());
        let over: Result<_, String> = member.over.iter().map(|lower| name(lower)).collect();
        let ipcp = LocalName::new(dif.ipcp(&member.system)).map_err(|error| error.to_string())?;
        let create = DifCreate {
            name: name(&dif.name)?,
            role: if place == 0 {
                DifRole::Create
            } else {
                DifRole::Join
            },
            over: over?,
            ipcp: Some(ipcp),
            via: None,
            auth,
            dialect: dif.dialect,
            config: Some(config),
        };
        checks.check_member(create, &member.system)?;
    }
    Ok(())
}

/// Removes the value at a path, and lists that become empty.
fn remove(config: &mut Value, path: &[String]) {
    let Some((last, above)) = path.split_last() else {
        return;
    };
    let parent = above
        .iter()
        .try_fold(&mut *config, |table, key| table.get_mut(key));
    match parent {
        Some(Value::Object(fields)) => drop(fields.remove(last)),
        Some(Value::Array(items)) => {
            if let Ok(index) = last.parse::<usize>()
                && index < items.len()
            {
                items.remove(index);
            }
        }
        _ => {}
    }
    if let Some(fields) = config.as_object_mut() {
        fields.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
    }
}
