//! `docs/policies.md` has every policy and parameter of the catalogue, with its default.

use carina_ipcp::{Catalogue, manage};

#[test]
fn every_policy_is_documented() {
    let text = include_str!("../../../../docs/policies.md");
    let mut catalogue = Catalogue::standard();
    manage::describe(&mut catalogue);
    let mut missing = Vec::new();
    for component in catalogue.components() {
        let heading = format!("\n## {component}\n");
        let Some((_, section)) = text.split_once(&heading) else {
            missing.push(heading);
            continue;
        };
        let section = section.split("\n## ").next().unwrap_or_default();
        for policy in catalogue.policies(component) {
            let note = if policy.is_live {
                ""
            } else {
                " *Not on a living DIF.*"
            };
            let mut rows = vec![format!("| `{}` | | | {}{note} |", policy.name, policy.help)];
            rows.extend(policy.params.iter().map(|param| {
                let default = match param.default {
                    "" => "none".to_string(),
                    default => format!("`{default}`"),
                };
                format!("| | `{}` | {default} | {} |", param.name, param.help)
            }));
            missing.extend(rows.into_iter().filter(|row| !section.contains(row)));
        }
    }
    assert!(
        missing.is_empty(),
        "docs/policies.md lacks:\n{}",
        missing.join("\n")
    );
}
