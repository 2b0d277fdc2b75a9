//! `carina lwaftr alarms`: lists and changes the alarms of a running AFTR.

use carina_lwaftr::alarms::{Alarm, OperatorState, Purge, Severity};
use carina_lwaftr::channel::Verb;
use carina_text::table::Table;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;

use super::config::ask;
use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// An alarm is named by its type, or by TYPE/QUALIFIER. When its condition ends, the alarm is
/// cleared; it stays in the list until it is purged.
#[derive(Debug, Subcommand)]
pub(crate) enum AlarmsCommand {
    /// List all alarms, raised and cleared
    #[command(after_help = "Example:\n  carina lwaftr alarms get-state --json")]
    GetState {
        /// Running AFTR, given by the name in its configuration or by its process id [default: the
        /// only running AFTR]
        id: Option<String>,
    },
    /// Remove alarms from the list; an alarm whose condition still holds is raised again
    #[command(after_help = "Example:\n  \
        carina lwaftr alarms purge cleared --by-older-than 3600")]
    Purge(PurgeArgs),
    /// Delete the history of the alarms of a type, except their last change
    #[command(after_help = "Example:\n  carina lwaftr alarms compress arp-resolution")]
    Compress {
        /// Type of the alarms, such as arp-resolution
        kind: String,
        /// Running AFTR, given by the name in its configuration or by its process id [default: the
        /// only running AFTR]
        id: Option<String>,
    },
    /// Set the operator's state of the alarms of a type, such as acknowledged
    #[command(after_help = "Example:\n  \
        carina lwaftr alarms set-operator-state filtered-packets/ingress-v4 ack")]
    SetOperatorState {
        /// Alarms to change: their type, or TYPE/QUALIFIER
        kind: String,
        /// New operator state of the alarms
        state: State,
        /// Running AFTR, given by the name in its configuration or by its process id [default: the
        /// only running AFTR]
        id: Option<String>,
    },
}

/// Selects the alarms to purge: those that match all criteria.
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Alarms to purge: any, cleared (the condition has ended) or not-cleared (the condition still
    /// holds)
    which: Which,
    /// Running AFTR, given by the name in its configuration or by its process id [default: the only
    /// running AFTR]
    id: Option<String>,
    /// Purge only alarms with this severity: is:V, below:V or above:V, where V is warning, minor,
    /// major or critical
    #[arg(long, value_name = "WAY:V", value_parser = severity)]
    by_severity: Option<(Comparison, Severity)>,
    /// Purge only alarms whose last change is at least this many seconds old
    #[arg(long, value_name = "SECONDS")]
    by_older_than: Option<u64>,
    /// Purge only alarms to which the operator gave this state
    #[arg(long, value_name = "STATE")]
    by_operator_state_filter: Option<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// All alarms
    Any,
    /// Alarms whose condition has ended
    Cleared,
    /// Alarms whose condition still holds
    NotCleared,
}

/// How the severity of an alarm is compared with the severity V of `--by-severity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// `is:V`: the alarm's severity equals V.
    Is,
    /// `below:V`: the alarm's severity is lower than V.
    Below,
    /// `above:V`: the alarm's severity is higher than V.
    Above,
}

/// The state that an operator gives to an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// No state
    None,
    /// Acknowledged: someone works on the problem
    Ack,
    /// The problem is solved
    Closed,
    /// Hide the alarm
    Shelved,
    /// Show the alarm again
    UnShelved,
}

impl From<State> for OperatorState {
    fn from(state: State) -> OperatorState {
        match state {
            State::None => OperatorState::None,
            State::Ack => OperatorState::Ack,
            State::Closed => OperatorState::Closed,
            State::Shelved => OperatorState::Shelved,
            State::UnShelved => OperatorState::UnShelved,
        }
    }
}

fn severity(text: &str) -> Result<(Comparison, Severity), ArgumentError> {
    let wrong = || ArgumentError::Severity(text.to_owned());
    let (comparison, severity) = text.split_once(':').ok_or_else(wrong)?;
    let comparison = match comparison {
        "is" => Comparison::Is,
        "below" => Comparison::Below,
        "above" => Comparison::Above,
        _ => return Err(wrong()),
    };
    let severity = serde_json::from_value(json!(severity));
    Ok((comparison, severity.map_err(|_| wrong())?))
}

impl PurgeArgs {
    fn purge(&self) -> Purge {
        let by = |comparison: Comparison| {
            let chosen = self.by_severity.filter(|(given, _)| *given == comparison);
            chosen.map(|(_, severity)| severity)
        };
        Purge {
            is_cleared: match self.which {
                Which::Any => None,
                which => Some(which == Which::Cleared),
            },
            older_than_s: self.by_older_than,
            severity_is: by(Comparison::Is),
            severity_below: by(Comparison::Below),
            severity_above: by(Comparison::Above),
            operator_state: self.by_operator_state_filter.map(OperatorState::from),
        }
    }
}

/// Runs a command of `carina lwaftr alarms`.
///
/// # Errors
/// No such AFTR runs, several match, or the AFTR refuses the request.
pub(super) fn run(shared: &Shared, command: AlarmsCommand) -> Outcome {
    let (verb, id, path, value) = match command {
        AlarmsCommand::GetState { id } => return show(shared, id.as_deref()),
        AlarmsCommand::Purge(args) => {
            let value = Some(json!(args.purge()).to_string());
            (Verb::PurgeAlarms, args.id, None, value)
        }
        AlarmsCommand::Compress { kind, id } => (Verb::CompressAlarms, id, None, Some(kind)),
        AlarmsCommand::SetOperatorState { kind, state, id } => {
            let state = json!(OperatorState::from(state));
            let state = state.as_str().unwrap_or_default().to_owned();
            (Verb::SetAlarms, id, Some(kind), Some(state))
        }
    };
    let count = ask(shared, id.as_deref(), verb, path, value)?;
    if shared.json {
        print_json(&json!({ "alarms": count.parse::<u64>().unwrap_or(0) }))
    } else {
        print_line(format!("alarms: {count}"))
    }
}

fn show(shared: &Shared, id: Option<&str>) -> Outcome {
    let text = ask(shared, id, Verb::Alarms, None, None)?;
    let alarms: Vec<Alarm> = serde_json::from_str(&text).attempt("reading the AFTR's answer")?;
    if shared.json {
        return print_json(&alarms);
    }
    let mut table = Table::new(["alarm", "severity", "state", "operator", "meaning"]);
    for alarm in &alarms {
        let Alarm {
            alarm_type_id: kind,
            alarm_type_qualifier: qualifier,
            ..
        } = alarm;
        let slash = if qualifier.is_empty() { "" } else { "/" };
        table.row([
            format!("{kind}{slash}{qualifier}"),
            word(&alarm.perceived_severity),
            if alarm.is_cleared {
                "cleared"
            } else {
                "raised"
            }
            .to_owned(),
            word(&alarm.operator_state),
            alarm.alarm_text.clone(),
        ]);
    }
    print_line(table)
}

/// The name of a state in JSON.
fn word(state: &impl Serialize) -> String {
    json!(state).as_str().unwrap_or_default().to_owned()
}
