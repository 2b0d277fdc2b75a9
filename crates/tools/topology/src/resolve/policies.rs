//! Policies of rlite translated to Carina's names.

use std::collections::BTreeMap;

use carina_api::control::Dialect;
use carina_ipcp::{Catalogue, PolicySpec};

use crate::token::error_at;
use crate::{Position, TopologyError};

/// A policy of rlite translated to Carina's names; `None` if Carina has no such policy.
pub(super) fn known_policy(
    component: String,
    spec: PolicySpec,
    at: Position,
    notes: &mut Vec<String>,
) -> Result<Option<(String, PolicySpec)>, TopologyError> {
    if RLITE_ONLY.contains(&component.as_str()) {
        notes.push(format!(
            "line {}: `{component} {}` of rlite has no equivalent; the DIF has its default policy",
            at.line, spec.name
        ));
        return Ok(None);
    }
    // These components are in the catalogue of the node, but not in that of the crate `ipcp`.
    if ["authentication", "sdu-protection"].contains(&component.as_str()) {
        return Ok(Some((component, spec)));
    }
    let theirs = spec.name.clone();
    let mut spec = like_of(&component, spec);
    let mut catalogue = Catalogue::standard();
    carina_management::describe(&mut catalogue);
    if spec.name != theirs {
        let params = std::mem::take(&mut spec.params);
        let like = catalogue.check_params(&component, &spec);
        let like = like.map_err(|what| error_at(at, what))?;
        let (known, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) = params
            .into_iter()
            .partition(|(name, _)| like.params.iter().any(|param| param.name == name));
        spec.params = known;
        note_parameters(&component, &theirs, unknown.keys(), at, notes);
    }
    let checked = catalogue.check_params(&component, &spec).map(drop);
    checked.map_err(|what| error_at(at, what))?;
    Ok(Some((component, spec)))
}

/// Replaces a policy of rlite by the equivalent policy of Carina, if that has another name.
fn like_of(component: &str, mut spec: PolicySpec) -> PolicySpec {
    match (component, spec.name.as_str()) {
        ("routing", "link-state-lfa") => {
            spec.name = "link-state".to_owned();
            spec.params.insert("lfa".to_owned(), "true".to_owned());
        }
        ("enrollment", "default") => spec.name = "reconnecting".to_owned(),
        _ => {}
    }
    spec
}

/// Notes that the parameters of a policy of rlite are ignored.
pub(super) fn note_parameters<'a>(
    component: &str,
    policy: &str,
    names: impl Iterator<Item = &'a String>,
    at: Position,
    notes: &mut Vec<String>,
) {
    notes.extend(names.map(|name| {
        format!(
            "line {}: the parameter {name} of `{component} {policy}` is left out: it has no \
             equivalent",
            at.line
        )
    }));
}

/// Whether a policy of rlite is the default and only one of its component.
pub(super) fn is_usual(component: &str, spec: &PolicySpec) -> bool {
    spec.name == "default" && ["enrollment", "flowalloc", "resalloc", "ribd"].contains(&component)
}

/// Carina's name for a component of rlite.
pub(super) fn component_name(dialect: Dialect, component: String) -> String {
    let name = match (dialect, component.as_str()) {
        (Dialect::Rlite, "addralloc") => "address-assignment",
        (Dialect::Rlite, "dft") => "directory",
        _ => return component,
    };
    name.to_owned()
}

/// Components of rlite that Carina does not have.
const RLITE_ONLY: [&str; 6] = [
    "addralloc",
    "dft",
    "flowalloc",
    "resalloc",
    "ribd",
    "namespace",
];
