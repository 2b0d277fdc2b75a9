//! Checks that `docs/reference/policies.md` has every policy and parameter of the catalogue with
//! its default, and `docs/reference/configuration.md` every key of a QoS cube.

use carina_ipcp::Catalogue;
use carina_ipcp::config::QosCube;

#[test]
fn every_policy_is_documented() {
    let text = include_str!("../../../../docs/reference/policies.md");
    let mut catalogue = Catalogue::standard();
    carina_management::describe(&mut catalogue);
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
        "docs/reference/policies.md lacks:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_key_of_a_cube_is_documented() {
    let text = include_str!("../../../../docs/reference/configuration.md");
    let (_, section) = text.split_once("\n### QoS cubes\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    // Lists all fields, so that a new one cannot be forgotten here.
    let QosCube {
        id: _,
        name: _,
        in_order,
        retransmission,
        window,
        rate,
        max_sdu_gap,
        partial_delivery,
        priority,
        weight,
        ecn,
        initial_a_ms,
        retransmit_ms,
        max_delay_us,
        max_loss,
    } = QosCube::plain(1, "any");
    let none = |is_none: bool| if is_none { "none" } else { "some" }.to_string();
    for (key, default) in [
        ("id", String::new()),
        ("name", String::new()),
        ("in_order", in_order.to_string()),
        ("retransmission", retransmission.to_string()),
        ("window", none(window.is_none())),
        ("rate", none(rate.is_none())),
        ("max_sdu_gap", none(max_sdu_gap.is_none())),
        ("partial_delivery", partial_delivery.to_string()),
        ("ecn", ecn.to_string()),
        ("priority", priority.to_string()),
        ("weight", weight.to_string()),
        ("initial_a_ms", initial_a_ms.to_string()),
        ("retransmit_ms", retransmit_ms.to_string()),
        ("max_delay_us", max_delay_us.to_string()),
        ("max_loss", max_loss.to_string()),
    ] {
        let row = match default.as_str() {
            "" => format!("| `{key}` | |"),
            default => format!("| `{key}` | {default} |"),
        };
        assert!(
            section.contains(&row),
            "docs/reference/configuration.md lacks: {row}"
        );
    }
}
