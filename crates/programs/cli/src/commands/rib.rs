//! `carina rib`: reads objects of a member's resource information base (RIB).

use std::collections::BTreeSet;

use carina_api::control::RibObject;
use carina_text::table::Table;
use clap::Subcommand;
use serde_json::Value;

use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// Read the RIB (resource information base) of members: their state as objects
#[derive(Debug, Subcommand)]
pub(crate) enum RibCommand {
    /// List an object of the RIB and the objects below it
    #[command(
        after_help = "Examples:\n  carina rib list\n  carina rib list /routing --dif net\n  \
        carina rib list /members --dif net --member net.host2\n  \
        carina rib list / --depth 1\n  \
        carina rib list / --where class=n1-flow --where blocked=true"
    )]
    List {
        /// Path of the object to list, such as /routing
        #[arg(default_value = "/", value_parser = rooted)]
        path: String,
        /// Number of levels below the object to list [default: all]
        #[arg(long, value_name = "LEVELS")]
        depth: Option<u32>,
        /// List only objects that have this field value or, with class=CLASS, this class; may be
        /// repeated: then all conditions must hold
        #[arg(long = "where", value_name = "FIELD=VALUE", value_parser = condition)]
        conditions: Vec<String>,
        #[command(flatten)]
        of: MemberChoice,
    },
    /// Print one object with all its fields
    #[command(after_help = "Example:\n  carina rib read /dif --dif net")]
    Read {
        /// Path of the object to print, such as /dif
        #[arg(value_parser = rooted)]
        path: String,
        #[command(flatten)]
        of: MemberChoice,
    },
}

/// Options that choose the member whose RIB is read.
#[derive(Debug, clap::Args)]
pub(crate) struct MemberChoice {
    /// DIF of the member [default: the only normal DIF of this system]
    #[arg(long)]
    dif: Option<String>,
    /// Member whose RIB is read, by name or address [default: the member of this system]
    #[arg(long)]
    member: Option<String>,
}

/// Runs a command of `carina rib`.
///
/// # Errors
/// There is no such member or object, or the member does not answer.
pub(crate) fn run(shared: &Shared, command: &RibCommand) -> Outcome {
    let (path, of, scope, filter) = match command {
        RibCommand::List {
            path,
            depth,
            conditions,
            of,
        } => (path, of, depth.unwrap_or(SCOPE_ALL), conditions.join("&")),
        RibCommand::Read { path, of } => (path, of, 0, String::new()),
    };
    let filter = (!filter.is_empty()).then_some(filter.as_str());
    let (dif, member) = (of.dif.as_deref(), of.member.as_deref());
    let objects = shared
        .control()
        .rib_where(dif, member, path, scope, filter)
        .attempt(format!("reading {path}"))?;
    if shared.json {
        return print_json(&objects);
    }
    if matches!(command, RibCommand::Read { .. }) {
        return print_line(fields_text(&objects));
    }
    let mut table = Table::new(["OBJECT", "CLASS", "FIELDS"]);
    for object in &objects {
        let fields: Vec<String> = object
            .fields
            .iter()
            .map(|(name, value)| format!("{name}={}", value_text(value)))
            .collect();
        table.row([object.path.clone(), object.class.clone(), fields.join(" ")]);
    }
    print_line(table)
}

/// Parses the path of an object, which must begin with `/`.
fn rooted(text: &str) -> Result<String, ArgumentError> {
    if text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err(ArgumentError::NotRooted(text.to_owned()))
    }
}

/// Parses a condition of `--where`: `FIELD=VALUE` without `&`.
fn condition(text: &str) -> Result<String, ArgumentError> {
    match text.split_once('=') {
        Some((field, _)) if !field.is_empty() && !text.contains('&') => Ok(text.to_owned()),
        _ => Err(ArgumentError::Condition),
    }
}

/// Formats objects with one line for each field.
pub(crate) fn fields_text(objects: &[RibObject]) -> String {
    let mut lines = Vec::new();
    for object in objects {
        lines.push(format!("{} ({})", object.path, object.class));
        for (name, value) in &object.fields {
            lines.push(format!("  {name}: {}", value_text(value)));
        }
    }
    lines.join("\n")
}

/// Table of objects of one kind: one row for each object, one column for each field. The prefix
/// `parent` is removed from the objects' names.
pub(crate) fn objects_table(objects: &[RibObject], parent: &str) -> Table {
    let fields: BTreeSet<&String> = objects
        .iter()
        .flat_map(|object| object.fields.keys())
        .collect();
    let titles = fields.iter().map(|field| field.to_uppercase());
    let mut table = Table::new(std::iter::once("OBJECT".to_owned()).chain(titles));
    for object in objects {
        let name = object.path.strip_prefix(parent).unwrap_or(&object.path);
        let name = match name.trim_start_matches('/') {
            "" => &object.path,
            name => name,
        };
        let value = |field: &&String| {
            let value = object.fields.get(*field);
            value.map_or_else(|| "-".to_owned(), value_text)
        };
        let cells = fields.iter().map(value);
        table.row(std::iter::once(name.to_owned()).chain(cells));
    }
    table
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(value_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Number of levels that is more than any tree of objects has.
const SCOPE_ALL: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_fields_that_there_are() {
        let object = |path: &str, field: &str| RibObject {
            path: path.to_owned(),
            class: String::new(),
            fields: [(field.to_owned(), 5.into())].into(),
        };
        let objects = [object("/members/a", "x"), object("/members/b", "y")];
        let text = objects_table(&objects, "/members").to_string();
        assert_eq!(text, "OBJECT  X  Y\na       5  -\nb       -  5");
    }
}
