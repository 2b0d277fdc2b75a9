//! Descriptions of the policies of this crate: their names and parameters.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::error::PolicyError;

/// Description of a policy of EFCP or delimiting, for lists that people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Name of the policy, as in the configuration of a DIF.
    pub name: &'static str,
    /// What the policy does, in one sentence.
    pub help: &'static str,
    /// The parameters that the policy accepts, each with its default value.
    pub params: &'static [ParamInfo],
}

/// Description of a parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Name of the parameter, as configurations write it.
    pub name: &'static str,
    /// Value of the parameter if the configuration does not set it, as text.
    pub default: &'static str,
    /// What the parameter means, with unit and range.
    pub help: &'static str,
}

/// The error for an unknown policy; it lists the names in `list`.
pub(crate) fn unknown_policy(
    component: &'static str,
    list: &[PolicyInfo],
    name: &str,
) -> PolicyError {
    PolicyError::UnknownPolicy {
        component,
        policy: name.into(),
        known: list.iter().map(|info| info.name).collect(),
    }
}

/// Finds the policy `name` in `list`. An error if `list` does not have this policy, or if the
/// policy does not have one of the given parameters.
pub(crate) fn check_names(
    component: &'static str,
    list: &'static [PolicyInfo],
    name: &str,
    params: &BTreeMap<String, String>,
) -> Result<&'static PolicyInfo, PolicyError> {
    let Some(info) = list.iter().find(|info| info.name == name) else {
        return Err(unknown_policy(component, list, name));
    };
    for given in params.keys() {
        if !info.params.iter().any(|param| param.name == given) {
            return Err(PolicyError::UnknownParameter {
                component,
                policy: info.name,
                parameter: given.clone(),
            });
        }
    }
    Ok(info)
}

/// Reads a parameter as a whole number within `range`. Returns the default if the parameter is not
/// given.
pub(crate) fn number(
    info: &PolicyInfo,
    params: &BTreeMap<String, String>,
    parameter: &'static str,
    range: core::ops::RangeInclusive<u64>,
) -> Result<u64, PolicyError> {
    let default = info.params.iter().find(|param| param.name == parameter);
    let default = default.map_or("", |param| param.default);
    let text = params.get(parameter).map_or(default, String::as_str);
    let value: Option<u64> = text.parse().ok();
    value
        .filter(|value| range.contains(value))
        .ok_or_else(|| PolicyError::Value {
            policy: info.name,
            parameter,
            value: text.into(),
            range,
        })
}
