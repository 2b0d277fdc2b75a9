//! `carina lwaftr alarms`.

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

/// Alarms have a type, and some a qualifier: TYPE/QUALIFIER. Those of a condition that has ended
/// are cleared, and stay until they are purged.
#[derive(Debug, Subcommand)]
pub enum AlarmsCommand {
    /// Show the alarms
    #[command(after_help = "Example:\n  carina lwaftr alarms get-state --json")]
    GetState {
        /// Name or process of the AFTR [default: the one that runs]
        id: Option<String>,
    },
    /// Take alarms out of the list
    #[command(after_help = "Example:\n  \
        carina lwaftr alarms purge cleared --by-older-than 3600")]
    Purge(PurgeArgs),
    /// Forget all but the last change of the alarms of a type
    #[command(after_help = "Example:\n  carina lwaftr alarms compress arp-resolution")]
    Compress {
        /// The type
        kind: String,
        /// Name or process of the AFTR [default: the one that runs]
        id: Option<String>,
    },
    /// Say something of the alarms of a type
    #[command(after_help = "Example:\n  \
        carina lwaftr alarms set-operator-state filtered-packets/ingress-v4 ack")]
    SetOperatorState {
        /// TYPE or TYPE/QUALIFIER
        kind: String,
        /// What is said
        state: State,
        /// Name or process of the AFTR [default: the one that runs]
        id: Option<String>,
    },
}

/// Which alarms are purged: those that meet all that is said.
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// Any, those that are cleared, those that are not
    which: Which,
    /// Name or process of the AFTR [default: the one that runs]
    id: Option<String>,
    /// Those of a severity: is:V, below:V or above:V, with warning, minor, major or critical
    #[arg(long, value_name = "WAY:V", value_parser = severity)]
    by_severity: Option<(Way, Severity)>,
    /// Those whose last change is so many seconds old
    #[arg(long, value_name = "SECONDS")]
    by_older_than: Option<u64>,
    /// Those of which the operator said this
    #[arg(long, value_name = "STATE")]
    by_operator_state_filter: Option<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Whether their condition lasts or not
    Any,
    /// Their condition has ended
    Cleared,
    /// It lasts
    NotCleared,
}

/// How a severity is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is this one.
    Is,
    /// It is lower.
    Below,
    /// It is higher.
    Above,
}

/// What an operator says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// Nothing
    None,
    /// It is being looked at
    Ack,
    /// It is mended
    Closed,
    /// It is not to be shown
    Shelved,
    /// It is shown again
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

fn severity(text: &str) -> Result<(Way, Severity), ArgumentError> {
    let wrong = || ArgumentError::Severity(text.to_owned());
    let (way, severity) = text.split_once(':').ok_or_else(wrong)?;
    let way = match way {
        "is" => Way::Is,
        "below" => Way::Below,
        "above" => Way::Above,
        _ => return Err(wrong()),
    };
    let severity = serde_json::from_value(json!(severity));
    Ok((way, severity.map_err(|_| wrong())?))
}

impl PurgeArgs {
    fn purge(&self) -> Purge {
        let by = |way: Way| {
            let chosen = self.by_severity.filter(|(its, _)| *its == way);
            chosen.map(|(_, severity)| severity)
        };
        Purge {
            is_cleared: match self.which {
                Which::Any => None,
                which => Some(which == Which::Cleared),
            },
            older_than_s: self.by_older_than,
            severity_is: by(Way::Is),
            severity_below: by(Way::Below),
            severity_above: by(Way::Above),
            operator_state: self.by_operator_state_filter.map(OperatorState::from),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The AFTR does not run, or refuses.
pub fn run(shared: &Shared, command: AlarmsCommand) -> Outcome {
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

/// The word of a state in JSON.
fn word(state: &impl Serialize) -> String {
    json!(state).as_str().unwrap_or_default().to_owned()
}
