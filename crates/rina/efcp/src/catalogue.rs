//! What the policies of this crate are called and which parameters they take.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::error::PolicyError;

/// A policy, as a list for people shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub help: &'static str,
    /// Its parameters.
    pub params: &'static [ParamInfo],
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Its name.
    pub name: &'static str,
    /// Its value when none is given.
    pub default: &'static str,
    /// What it means, with unit and range.
    pub help: &'static str,
}

/// The error that names the policies of `list`.
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

/// The policy of this name, when all parameters given are among its own.
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

/// A parameter as a whole number within a range; its default when it is not given.
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
