//! `carina dif show`: shows what one member knows of its DIF, read from its RIB.

use std::collections::BTreeMap;
use std::fmt::Write;

use carina_api::control::{Client, ClientError, RibObject};
use carina_api::{DifName, ErrorCode};
use carina_text::table::Table;
use serde_json::{Map, Value};

use super::below;
use crate::Shared;
use crate::commands::rib::objects_table;
use crate::failure::{Attempt, Failure, Outcome};
use crate::report::{print_json, print_line};

/// Options of `carina dif show`: the DIF, and the member whose knowledge of it to show.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Name of the DIF to show
    name: DifName,
    /// Member whose view of the DIF to show, by name or address [default: the member of this
    /// system]
    #[arg(long)]
    member: Option<String>,
}

/// Sections of the output: title in text, key in JSON, RIB object, levels below the object.
const SECTIONS: [(&str, &str, &str, u32); 8] = [
    ("DIF", "dif", "/dif", 0),
    ("Members", "members", "/members", 1),
    ("Neighbours", "neighbours", "/neighbours", 1),
    ("N-1 flows", "n1", "/data-transfer/n1", 1),
    (
        "Forwarding table",
        "forwarding",
        "/data-transfer/forwarding",
        1,
    ),
    ("Directory", "directory", "/directory", 1),
    ("QoS cubes", "cubes", "/dif/cubes", 1),
    ("Policies", "policies", "/policies", 1),
];

/// Table of components with their policies in force and the parameters of each policy.
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

/// Replaces the times of the member's clock in neighbour objects by how long ago each neighbour was
/// heard, for people.
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

/// Formats how many milliseconds ago something happened, such as `1.5 s ago`.
pub(super) fn ago_text(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms ago"),
        1000..60_000 => format!("{:.1} s ago", ms as f64 / 1e3),
        60_000..3_600_000 => format!("{} min ago", ms / 60_000),
        _ => format!("{} h ago", ms / 3_600_000),
    }
}

/// Prints what one member of a DIF knows: members, neighbours, flows, and the N-1 DIFs below.
///
/// # Errors
/// There is no such DIF or member, or it does not answer.
pub(super) fn run(shared: &Shared, args: &ShowArgs) -> Outcome {
    let node = shared.control();
    let difs = node.difs().attempt("listing DIFs")?;
    let dialect = difs.iter().find(|dif| dif.name == args.name);
    let dialect = dialect.and_then(|dif| dif.dialect).unwrap_or_default();
    let mut read = BTreeMap::new();
    for (_, key, path, scope) in SECTIONS {
        let mut objects = read_objects(&node, args, path, scope)?;
        objects.retain(|object| scope == 0 || object.path != path);
        read.insert(key, objects);
    }
    let over = match &args.member {
        None => {
            let ipcps = node.ipcps().attempt("listing IPCPs")?;
            below::here(&ipcps, &args.name, &read["neighbours"])
        }
        Some(_) => {
            let mut over = read_objects(&node, args, "/over", 1)?;
            over.retain(|object| object.path != "/over");
            below::elsewhere(&below::Seen {
                dif: &read["dif"],
                over: &over,
                flows: &read["n1"],
                neighbours: &read["neighbours"],
            })
        }
    };
    if shared.json {
        let mut all = Map::new();
        all.insert("dialect".to_owned(), dialect.name().into());
        let value = serde_json::to_value(&over).attempt("writing JSON")?;
        all.insert("over".to_owned(), value);
        for (key, objects) in read {
            let value = serde_json::to_value(objects).attempt("writing JSON")?;
            all.insert(key.to_owned(), value);
        }
        return print_json(&Value::Object(all));
    }
    let mut text = format!("Dialect\n  {}", dialect.name());
    let _ = write!(text, "\n\nN-1 DIFs\n{}", below::table(&over));
    for (title, key, path, _) in SECTIONS {
        let objects = read.remove(key).unwrap_or_default();
        let shown = match (objects.is_empty(), key) {
            (true, _) => "  none".to_owned(),
            (_, "policies") => policies_table(&objects).to_string(),
            (_, "neighbours") => objects_table(&with_ages(objects), path).to_string(),
            _ => objects_table(&objects, path).to_string(),
        };
        let _ = write!(text, "\n\n{title}\n{shown}");
    }
    print_line(text)
}

/// Reads the object at `path` of the chosen member, and `scope` levels of objects below it.
fn read_objects(
    node: &Client,
    args: &ShowArgs,
    path: &str,
    scope: u32,
) -> Result<Vec<RibObject>, Failure> {
    let (dif, member) = (args.name.as_str(), args.member.as_deref());
    match node.rib(Some(dif), member, path, scope) {
        // In other dialects than native, an object without content does not exist.
        Err(ClientError::Refused { body, .. })
            if body.code == ErrorCode::NotFound && path != "/dif" =>
        {
            Ok(Vec::new())
        }
        read => read.attempt(format!("reading {path} of DIF {dif}")),
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
