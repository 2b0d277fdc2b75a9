//! `carina dif show`: what one member knows of its DIF, read from its RIB.

use std::fmt::Write;

use carina_api::control::{ClientError, IpcpInfo, N1Info, N1State, RibObject};
use carina_api::{DifName, ErrorCode, LocalName};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Shared;
use crate::commands::rib::objects_table;
use crate::failure::{Attempt, Outcome};
use crate::report::table::Table;
use crate::report::{print_json, print_line};

/// Options of `carina dif show`.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// The DIF
    name: DifName,
    /// The member, by name or address [default: that of this system]
    #[arg(long)]
    member: Option<String>,
}

/// Title in text, key in JSON, object, depth.
const SECTIONS: [(&str, &str, &str, u32); 8] = [
    ("DIF", "dif", "/dif", 0),
    ("Members", "members", "/members", 1),
    ("Neighbours", "neighbours", "/neighbours", 1),
    ("N-1 flows", "n1", "/transfer/n1", 1),
    ("Forwarding table", "forwarding", "/transfer/forwarding", 1),
    ("Directory", "directory", "/directory", 1),
    ("QoS cubes", "cubes", "/dif/cubes", 1),
    ("Policies", "policies", "/policies", 1),
];

/// An N-1 flow of this system's member, or an N-1 DIF of it in which there is none.
#[derive(Debug, Serialize)]
struct Below {
    dif: DifName,
    member: LocalName,
    #[serde(skip_serializing_if = "Option::is_none")]
    n1: Option<N1Info>,
}

/// What the members of a DIF in this system stand on.
fn over_of(ipcps: &[IpcpInfo], name: &DifName) -> Vec<Below> {
    let mut all = Vec::new();
    for ipcp in ipcps.iter().filter(|ipcp| ipcp.dif == *name) {
        if let Some(member) = &ipcp.member {
            for dif in &member.over {
                let below = |n1: Option<N1Info>| Below {
                    dif: dif.clone(),
                    member: ipcp.name.clone(),
                    n1,
                };
                let before = all.len();
                let here = member.n1.iter().filter(|n1| n1.dif == *dif);
                all.extend(here.map(|n1| below(Some(n1.clone()))));
                if all.len() == before {
                    all.push(below(None));
                }
            }
        }
    }
    all
}

fn over_table(over: &[Below]) -> Table {
    let mut table = Table::new(["DIF", "MEMBER", "REMOTE", "NEIGHBOUR", "STATE", "REASON"]);
    for Below { dif, member, n1 } in over {
        let n1 = n1.as_ref();
        let state = n1.map_or("no flow", |n1| match n1.state {
            N1State::Refused => "refused",
            N1State::Wanted => "wanted",
            N1State::Allocating => "allocating",
            N1State::Up => "up",
        });
        let neighbour = n1.and_then(|n1| n1.neighbour.as_ref());
        table.row([
            dif.to_string(),
            member.to_string(),
            n1.map_or_else(String::new, |n1| n1.remote.to_string()),
            neighbour.map_or_else(String::new, ToString::to_string),
            state.to_owned(),
            n1.and_then(|n1| n1.reason.clone()).unwrap_or_default(),
        ]);
    }
    table
}

/// Components and the policies in force; each has parameters of its own.
fn policies_table(objects: &[RibObject]) -> Table {
    let mut table = Table::new(["COMPONENT", "POLICY", "PARAMETERS"]);
    for object in objects {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_param = |name: &str| !matches!(name, "name" | "choices" | "is_live");
        let params: Vec<String> = object
            .fields
            .iter()
            .filter(|(name, _)| is_param(name))
            .map(|(name, value)| format!("{name}={}", text(value)))
            .collect();
        let component = object.path.strip_prefix("/policies/");
        table.row([
            component.unwrap_or(&object.path).to_owned(),
            object.fields.get("name").map_or_else(String::new, text),
            params.join(","),
        ]);
    }
    table
}

/// Neighbours with the time since each was heard in place of the member's clock, for people.
fn with_ages(mut objects: Vec<RibObject>) -> Vec<RibObject> {
    for object in &mut objects {
        object.fields.remove("heard_at_ms");
        let ago = object.fields.remove("heard_ago_ms");
        if let Some(ago_ms) = ago.and_then(|ago| ago.as_u64()) {
            let text = Value::from(ago_text(ago_ms));
            object.fields.insert("heard".to_owned(), text);
        }
    }
    objects
}

/// How long ago something was.
pub fn ago_text(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms ago"),
        1000..60_000 => format!("{:.1} s ago", ms as f64 / 1e3),
        60_000..3_600_000 => format!("{} min ago", ms / 60_000),
        _ => format!("{} h ago", ms / 3_600_000),
    }
}

/// Runs the command.
///
/// # Errors
/// There is no such DIF or member, or it does not answer.
pub fn run(shared: &Shared, args: &ShowArgs) -> Outcome {
    let node = shared.control();
    let difs = node.difs().attempt("listing DIFs")?;
    let dialect = difs.iter().find(|dif| dif.name == args.name);
    let dialect = dialect.and_then(|dif| dif.dialect).unwrap_or_default();
    let (mut text, mut all) = (format!("Dialect\n  {}", dialect.name()), Map::new());
    all.insert("dialect".to_owned(), dialect.name().into());
    if args.member.is_none() {
        let over = over_of(&node.ipcps().attempt("listing IPCPs")?, &args.name);
        all.insert(
            "over".to_owned(),
            serde_json::to_value(&over).attempt("writing JSON")?,
        );
        let _ = write!(text, "\n\nN-1 DIFs\n{}", over_table(&over));
    }
    for (title, key, path, scope) in SECTIONS {
        let read = node.rib(
            Some(args.name.as_str()),
            args.member.as_deref(),
            path,
            scope,
        );
        let objects = match read {
            // Members of other dialects have no object where there is nothing to show.
            Err(ClientError::Refused { body, .. })
                if body.code == ErrorCode::NotFound && key != "dif" =>
            {
                Vec::new()
            }
            read => read.attempt(format!("reading {path} of DIF {}", args.name))?,
        };
        let below: Vec<_> = objects
            .into_iter()
            .filter(|object| scope == 0 || object.path != path)
            .collect();
        if shared.json {
            all.insert(
                key.to_owned(),
                serde_json::to_value(&below).attempt("writing JSON")?,
            );
            continue;
        }
        let table = match key {
            "policies" => policies_table(&below),
            "neighbours" => objects_table(&with_ages(below.clone()), path),
            _ => objects_table(&below, path),
        };
        let shown = match below.is_empty() {
            true => "  none".to_owned(),
            false => table.to_string(),
        };
        let _ = write!(text, "\n\n{title}\n{shown}");
    }
    match shared.json {
        true => print_json(&Value::Object(all)),
        false => print_line(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_for_people_and_the_clock_of_a_member_is_not() {
        let fields = [("heard_at_ms", 77), ("heard_ago_ms", 1500), ("address", 5)];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.into()));
        let object = RibObject {
            path: "/neighbours/n.b".to_owned(),
            class: String::new(),
            fields: fields.into(),
        };
        let table = objects_table(&with_ages(vec![object]), "/neighbours").to_string();
        assert_eq!(
            table,
            "OBJECT  ADDRESS      HEARD\nn.b           5  1.5 s ago"
        );
        let texts = [999, 59_999, 60_000, 7_300_000].map(ago_text);
        assert_eq!(texts, ["999 ms ago", "60.0 s ago", "1 min ago", "2 h ago"]);
    }
}
