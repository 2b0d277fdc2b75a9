//! Writes a draft as a configuration in TOML.

use std::fmt::Write;

use carina_api::control::DifRole;
use carina_text::toml::{inline, quoted};
use serde_json::Value;

use super::{Draft, Member};

/// The draft as TOML.
pub(super) fn write(draft: &Draft) -> String {
    let mut text = String::new();
    if let Some(name) = &draft.node {
        let _ = writeln!(text, "[node]\nname = {}\n", quoted(name));
    }
    for shim in &draft.shims {
        table(
            &mut text,
            "ipcp",
            serde_json::to_value(shim).unwrap_or_default(),
        );
    }
    for member in in_order(&draft.members) {
        table(&mut text, "dif", member_fields(member));
    }
    text
}

/// The members, sorted so that each follows the members of its N-1 DIFs, because a node creates
/// them in this order.
fn in_order(members: &[Member]) -> Vec<&Member> {
    let mut waiting: Vec<&Member> = members.iter().collect();
    let mut sorted: Vec<&Member> = Vec::new();
    while !waiting.is_empty() {
        let is_free = |member: &&Member| {
            let mut lowers = member.over.iter();
            !lowers.any(|lower| waiting.iter().any(|other| other.dif == *lower))
        };
        // In a cycle no member is free; the node will refuse the configuration.
        let next = waiting.iter().position(is_free).unwrap_or(0);
        sorted.push(waiting.remove(next));
    }
    sorted
}

fn member_fields(member: &Member) -> Value {
    let role = match member.role {
        Some(DifRole::Join) => "join",
        _ => "create",
    };
    let mut fields = serde_json::json!({
        "name": member.dif, "role": role, "over": member.over, "ipcp": member.ipcp,
        "via": member.via, "dialect": member.dialect.name(),
    });
    if !member.config.is_empty() {
        fields["config"] = Value::Object(member.config.clone());
    }
    fields
}

/// Writes a table with one key on each line.
fn table(text: &mut String, name: &str, fields: Value) {
    let _ = writeln!(text, "[[{name}]]");
    for (key, value) in fields.as_object().into_iter().flatten() {
        let is_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !is_nothing {
            let _ = writeln!(text, "{key} = {}", inline(value));
        }
    }
    text.push('\n');
}
