//! What the policies of this crate are called and which parameters they take.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

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

/// The policy of this name, when all parameters given are among its own.
pub(crate) fn check_names(
    component: &str,
    list: &'static [PolicyInfo],
    name: &str,
    params: &BTreeMap<String, String>,
) -> Result<&'static PolicyInfo, String> {
    let Some(info) = list.iter().find(|info| info.name == name) else {
        let names: Vec<&str> = list.iter().map(|info| info.name).collect();
        return Err(format!(
            "{component} has no policy {name:?}; there is: {}",
            names.join(", ")
        ));
    };
    for given in params.keys() {
        if !info.params.iter().any(|param| param.name == given) {
            return Err(format!(
                "{component} policy {name} has no parameter {given:?}"
            ));
        }
    }
    Ok(info)
}

/// A parameter as a whole number within a range; its default when it is not given.
pub(crate) fn number(
    info: &PolicyInfo,
    params: &BTreeMap<String, String>,
    name: &str,
    range: core::ops::RangeInclusive<u64>,
) -> Result<u64, String> {
    let default = info.params.iter().find(|param| param.name == name);
    let default = default.map_or("", |param| param.default);
    let text = params.get(name).map_or(default, String::as_str);
    let value: Option<u64> = text.parse().ok();
    value.filter(|value| range.contains(value)).ok_or_else(|| {
        let (least, most) = (range.start().to_string(), range.end());
        format!(
            "{name} of policy {} is a whole number from {least} to {most}, not {text:?}",
            info.name
        )
    })
}
