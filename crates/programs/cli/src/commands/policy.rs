//! `carina policy`: lists the available policies and those in force, and changes a policy.

mod everywhere;

use std::collections::BTreeMap;
use std::str::FromStr;

use carina_api::DifName;
use carina_api::control::{Dialect, RibWrite};
use carina_text::table::Table;
use clap::Subcommand;
use serde_json::Value;

use crate::Shared;
use crate::argument::ArgumentError;
use crate::commands::rib::fields_text;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// List and change the policies of DIFs, which decide about routing, scheduling and other functions
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the available policies of every component, with parameters and defaults
    #[command(
        after_help = "Examples:\n  carina policy list\n  carina policy list --dif net\n  \
        carina policy list --dialect rlite"
    )]
    List {
        /// List the policies of this DIF's dialect, and mark the policies in force [default: none
        /// are marked]
        #[arg(long)]
        dif: Option<DifName>,
        /// List the policies of this dialect: native, rlite or irati [default: native]
        #[arg(long, conflicts_with = "dif")]
        dialect: Option<Dialect>,
    },
    /// Change the policy of a component, or its parameters, while the DIF runs
    #[command(
        after_help = "Examples:\n  carina policy set rmt-scheduling=weighted-fair --dif net\n  \
        carina policy set rmt-queue=red,least=50,most=200 --dif net --member net.host2\n  \
        carina policy set rmt-scheduling=strict-priority --dif net --all\n\nThe change applies \
        to one member: the one of this system, or --member. With --all it is sent to every\nmember \
        that is known here, and each member accepts or refuses it. The command lists the \
        members that\nrefuse; the exit code is then 1 (3 when none can accept: the value is \
        wrong, or is fixed while the DIF runs)."
    )]
    Set {
        /// Component, policy and parameters, such as rmt-queue=red,least=50,most=200
        #[arg(value_name = "COMPONENT=NAME[,PARAM=VALUE..]")]
        choice: Choice,
        /// DIF of the member [default: the only normal DIF of this system]
        #[arg(long)]
        dif: Option<DifName>,
        /// Member to change, by name or address [default: the member of this system]
        #[arg(long)]
        member: Option<String>,
        /// Change the policy at every member that this system's member knows
        #[arg(long, conflicts_with = "member")]
        all: bool,
    },
}

/// The choice of a policy for a component: `COMPONENT=NAME,PARAM=VALUE..` on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Name of the component whose policy is chosen, such as `rmt-queue`.
    pub component: String,
    /// Name of the chosen policy, such as `red`.
    pub name: String,
    /// Parameters of the policy: values by name.
    pub params: BTreeMap<String, String>,
}

impl FromStr for Choice {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Choice, ArgumentError> {
        let mut parts = text.split(',');
        let first = parts.next().and_then(|part| part.split_once('='));
        let (component, name) = first.ok_or(ArgumentError::Policy)?;
        if component.is_empty() || name.is_empty() {
            return Err(ArgumentError::Policy);
        }
        let mut params = BTreeMap::new();
        for part in parts {
            let (param, value) = part.split_once('=').ok_or(ArgumentError::Policy)?;
            if params.insert(param.to_owned(), value.to_owned()).is_some() {
                return Err(ArgumentError::Twice(param.to_owned()));
            }
        }
        Ok(Choice {
            component: component.to_owned(),
            name: name.to_owned(),
            params,
        })
    }
}

/// Runs a command of `carina policy`.
///
/// # Errors
/// There is no such DIF, member, policy or parameter, or it cannot be changed.
pub(crate) fn run(shared: &Shared, command: &PolicyCommand) -> Outcome {
    match command {
        PolicyCommand::List { dif, dialect } => list(shared, dif.as_ref(), *dialect),
        PolicyCommand::Set {
            choice,
            dif,
            member,
            all,
        } => set(shared, choice, dif.as_ref(), member.as_deref(), *all),
    }
}

fn list(shared: &Shared, dif: Option<&DifName>, dialect: Option<Dialect>) -> Outcome {
    let control = shared.control();
    let catalogue = match dialect {
        Some(dialect) => control.policies_of(dialect),
        None => control.policies(dif.map(DifName::as_str)),
    };
    let catalogue = catalogue.attempt("listing policies")?;
    if shared.json {
        return print_json(&catalogue);
    }
    let mut table = Table::new([
        "COMPONENT",
        "POLICY",
        "USE",
        "LIVE",
        "PARAMETERS",
        "WHAT IT DOES",
    ]);
    let mut last = "";
    for policy in &catalogue.policies {
        let is_default = policy.component != last;
        last = &policy.component;
        let in_force = catalogue
            .in_force
            .iter()
            .find(|used| used.component == policy.component && used.name == policy.name);
        let usage = match (in_force, is_default) {
            (Some(_), _) => "in force",
            (None, true) => "default",
            (None, false) => "",
        };
        let params: Vec<String> = policy
            .params
            .iter()
            .map(|param| {
                let value = in_force.and_then(|used| used.params.get(&param.name));
                format!("{}={}", param.name, value.unwrap_or(&param.default))
            })
            .collect();
        table.row([
            policy.component.as_str(),
            &policy.name,
            usage,
            if policy.live { "yes" } else { "no" },
            &params.join(","),
            &policy.help,
        ]);
    }
    print_line(table)
}

fn set(
    shared: &Shared,
    choice: &Choice,
    dif: Option<&DifName>,
    member: Option<&str>,
    all: bool,
) -> Outcome {
    let text = |value: &String| Value::String(value.clone());
    let mut fields: BTreeMap<String, Value> = choice
        .params
        .iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect();
    fields.insert("name".to_owned(), text(&choice.name));
    let write = RibWrite {
        dif: dif.cloned(),
        member: member.map(str::to_owned),
        path: format!("/policies/{}", choice.component),
        fields,
    };
    if all {
        return everywhere::run(shared, &write);
    }
    let node = shared.control();
    node.write_rib(&write)
        .attempt(format!("setting {}", choice.component))?;
    // The answer of a remote member to a write does not contain the new values.
    let objects = node
        .rib(dif.map(DifName::as_str), member, &write.path, 0)
        .attempt(format!("reading {}", write.path))?;
    if shared.json {
        print_json(&objects)
    } else {
        print_line(fields_text(&objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_with_their_parameters() {
        let choice: Choice = "rmt-queue=red,min=5,max=".parse().unwrap();
        assert_eq!(
            (choice.component.as_str(), choice.name.as_str()),
            ("rmt-queue", "red")
        );
        assert_eq!(
            (choice.params["min"].as_str(), choice.params["max"].as_str()),
            ("5", "")
        );
        for wrong in ["", "a", "=b", "a=", "a=b,c", "a=b,c=1,c=2"] {
            assert!(wrong.parse::<Choice>().is_err(), "{wrong}");
        }
    }
}
