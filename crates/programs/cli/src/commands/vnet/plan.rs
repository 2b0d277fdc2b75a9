//! `carina vnet plan`: shows what `up` or `apply` would do.

use carina_api::control::ClientError;
use carina_text::table::Table;
use carina_vnet_host::admission_check::AdmissionCheck;
use carina_vnet_host::plan::{Action, Plan};
use carina_vnet_host::{Record, Vnets, leftovers};

use super::agent::client;
use super::document::Source;
use super::user_namespace::enter_existing;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, refused};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Shows what making or changing the network of a document would do.
///
/// # Errors
/// The document is wrong, or the network does not fit.
pub(super) fn run(shared: &Shared, source: &Source) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let plan = plan(shared, source)?;
    if shared.json {
        print_json(&plan)?
    } else {
        print_line(words(&plan))?
    }
    match plan.refusal {
        None => Ok(()),
        Some(why) => Err(refused(format!(
            "network {} does not fit: {why}",
            plan.name
        ))),
    }
}

/// The plan of the agent; without an agent, a plan based on the agent's records.
fn plan(shared: &Shared, source: &Source) -> Result<Plan, Failure> {
    let agent = client(shared);
    if agent.list().is_err() {
        enter_existing(shared)?;
    }
    let document = source.read()?;
    let what = || format!("planning network {}", document.vnet.name);
    match agent.plan(&document) {
        Err(ClientError::Connect { .. }) => {
            let vnets = Vnets::of(&shared.run_dir());
            let records = vnets.list().attempt(what())?;
            let records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
            let plan = Plan::of(&document, &records, &AdmissionCheck::of_this_machine());
            let plan = plan.attempt(what())?;
            let is_this = |record: &&Record| record.is_of_operator(&plan.name);
            let Some(record) = records.iter().find(is_this) else {
                return Ok(plan);
            };
            let ended = leftovers::ended_nodes(&vnets.vnet(&plan.name), record);
            let ended = ended.attempt(what())?;
            Ok(plan.with_ended(&ended))
        }
        plan => plan.attempt(what()),
    }
}

fn words(plan: &Plan) -> String {
    let counts = [
        (Action::Add, "to add"),
        (Action::Change, "to change"),
        (Action::Replace, "to replace"),
        (Action::Remove, "to remove"),
    ];
    let counts = counts.map(|(action, words)| format!("{} {words}", plan.count(action)));
    let verb = if plan.is_there { "apply" } else { "up" };
    let fits = match plan.refusal {
        None => format!("the network fits: `carina vnet {verb}` makes these changes"),
        Some(_) => "the network does not fit".to_owned(),
    };
    let head = format!("{}: {}; {fits}", plan.name, counts.join(", "));
    if plan.steps.is_empty() {
        return format!("{}: nothing to change", plan.name);
    }
    let mut table = Table::new(["", "WHAT", "WHY"]);
    for step in &plan.steps {
        table.row([step.action.sign(), &step.subject, &step.reason]);
    }
    let notes: String = plan
        .notes
        .iter()
        .map(|note| format!("\nNote: {note}"))
        .collect();
    format!("{head}\n\n{table}{notes}")
}

#[cfg(test)]
mod tests {
    use carina_vnet_host::plan::PlannedStep;

    use super::*;

    #[test]
    fn plan_is_counted_and_listed() {
        let step = |action, subject: &str| PlannedStep {
            action,
            subject: subject.to_owned(),
            reason: "of a reason".to_owned(),
        };
        let mut plan = Plan {
            name: "x".to_owned(),
            is_there: true,
            refusal: None,
            notes: vec!["no routes".to_owned()],
            steps: vec![step(Action::Add, "node a"), step(Action::Replace, "node b")],
        };
        let text = words(&plan);
        let head = "x: 1 to add, 0 to change, 1 to replace, 0 to remove; the network fits";
        assert!(text.starts_with(head), "{text}");
        assert!(
            text.contains("-/+") && text.contains("vnet apply"),
            "{text}"
        );
        assert!(text.contains("\nNote: no routes"), "{text}");
        plan.steps.clear();
        assert_eq!(words(&plan), "x: nothing to change");
    }
}
