//! `carina rib`: objects of a member's resource information base.

use std::collections::BTreeSet;

use carina_api::control::RibObject;
use carina_text::table::Table;
use clap::Subcommand;
use serde_json::Value;

use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// Read the resource information base of members of normal DIFs
#[derive(Debug, Subcommand)]
pub enum RibCommand {
    /// List objects
    #[command(
        after_help = "Examples:\n  carina rib list\n  carina rib list /routing --dif net\n  \
        carina rib list /members --dif net --member net.host2\n  \
        carina rib list / --depth 1\n  \
        carina rib list / --where class=n1-flow --where blocked=true"
    )]
    List {
        /// List this object and those below it
        #[arg(default_value = "/", value_parser = rooted)]
        path: String,
        /// Levels below the object to list [default: all]
        #[arg(long, value_name = "LEVELS")]
        depth: Option<u32>,
        /// List only objects of a class (class=CLASS) or with this field value; may be repeated
        #[arg(long = "where", value_name = "FIELD=VALUE", value_parser = condition)]
        conditions: Vec<String>,
        #[command(flatten)]
        of: Of,
    },
    /// Show one object with its fields
    #[command(after_help = "Example:\n  carina rib read /dif --dif net")]
    Read {
        /// The object
        #[arg(value_parser = rooted)]
        path: String,
        #[command(flatten)]
        of: Of,
    },
}

/// Whose RIB.
#[derive(Debug, clap::Args)]
pub struct Of {
    /// The DIF [default: the only normal one of this system]
    #[arg(long)]
    dif: Option<String>,
    /// The member, by name or address [default: this system's member]
    #[arg(long)]
    member: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// There is no such member or object, or the member does not answer.
pub fn run(shared: &Shared, command: &RibCommand) -> Outcome {
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

/// A path of an object.
fn rooted(text: &str) -> Result<String, ArgumentError> {
    if text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err(ArgumentError::NotRooted(text.to_owned()))
    }
}

/// A condition of `--where`.
fn condition(text: &str) -> Result<String, ArgumentError> {
    match text.split_once('=') {
        Some((field, _)) if !field.is_empty() && !text.contains('&') => Ok(text.to_owned()),
        _ => Err(ArgumentError::Condition),
    }
}

/// Objects with a line for each field.
pub fn fields_text(objects: &[RibObject]) -> String {
    let mut lines = Vec::new();
    for object in objects {
        lines.push(format!("{} ({})", object.path, object.class));
        for (name, value) in &object.fields {
            lines.push(format!("  {name}: {}", value_text(value)));
        }
    }
    lines.join("\n")
}

/// Objects of one kind: a line each, a column for each field. `parent` is cut off their names.
pub fn objects_table(objects: &[RibObject], parent: &str) -> Table {
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

/// Deeper than any tree of objects is.
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
