//! Translates schedulers of rlite. In Carina the queues of a scheduler are for QoS cubes.

use serde_json::json;

use super::number;
use crate::Member;
use crate::error::Reason;

/// A setting in bytes: its name, and its smallest and largest value.
type Range = (&'static str, u64, u64);

/// Range of a setting of policy `weighted-fair`.
const QUANTUM: Range = ("quantum", 256, 65_536);
/// Range of a setting of policy `tail-drop`.
const QUEUE: Range = ("qsize", 4096, 1 << 32);

/// Sets the scheduler of a member with its options.
///
/// # Errors
/// What is not translated, or is set to another value than given.
pub(super) fn set(member: &mut Member, scheduler: &str, options: &[&str]) -> Result<(), Reason> {
    let known: &[&str] = match scheduler {
        "none" => &["qsize"],
        "pfifo" => &["qsize", "levels"],
        "wrr" => &["qsize", "quantum", "weights"],
        other => {
            return Err(format!(
                "scheduler {other} is unknown; valid values are none, pfifo and wrr"
            )
            .into());
        }
    };
    let options = options_of(options, known)?;
    let option = |key: &str| options.iter().find(|(given, _)| *given == key);
    let first = |key: &str| option(key).and_then(|(_, values)| values.first());
    let queue: Option<u64> = first("qsize").map(|text| number(text)).transpose()?;
    let quantum: Option<u64> = first("quantum").map(|text| number(text)).transpose()?;
    let mut changed = Vec::new();
    let queue = queue.map(|bytes| within(QUEUE, bytes, &mut changed));
    let quantum = within(QUANTUM, quantum.unwrap_or(2000), &mut changed);
    let policies = member.table(&["policies"]);
    let scheduling = match scheduler {
        "none" => json!({ "name": "fifo" }),
        "pfifo" => json!({ "name": "strict-priority" }),
        _ => json!({
            "name": "weighted-fair",
            "params": { "quantum": quantum.to_string() },
        }),
    };
    policies.insert("rmt-scheduling".to_owned(), scheduling);
    if let Some(bytes) = queue {
        let params = json!({ "limit-bytes": bytes.to_string() });
        let queue = json!({ "name": "tail-drop", "params": params });
        policies.insert("rmt-queue".to_owned(), queue);
    }
    if option("levels").is_some() || option("weights").is_some() {
        changed.push(
            "carried over but for levels and weights: these are `priority` and `weight` of the \
             DIF's cubes"
                .to_owned(),
        );
    }
    if changed.is_empty() {
        Ok(())
    } else {
        Err(changed.join("; ").into())
    }
}

/// The nearest value that a member accepts. Adds a text to `changed` if it is not the given one.
fn within((name, min, max): Range, given: u64, changed: &mut Vec<String>) -> u64 {
    let here = given.clamp(min, max);
    if here != given {
        changed.push(format!(
            "{name} is {given} bytes, which was changed to {here}: must be {min} to {max}"
        ));
    }
    here
}

/// The options of a scheduler, each with the words that follow it.
fn options_of<'a>(
    words: &[&'a str],
    known: &[&str],
) -> Result<Vec<(&'a str, Vec<&'a str>)>, Reason> {
    let mut options: Vec<(&str, Vec<&str>)> = Vec::new();
    for word in words {
        match options.last_mut() {
            _ if known.contains(word) => options.push((word, Vec::new())),
            // Weights may be several words.
            Some((key, values)) if values.is_empty() || *key == "weights" => values.push(word),
            _ => {
                return Err(format!(
                    "{word} is not a parameter of this scheduler; its parameters are {}",
                    known.join(", ")
                )
                .into());
            }
        }
    }
    match options.iter().find(|(_, values)| values.is_empty()) {
        Some((key, _)) => Err(format!("{key} has no value; write {key} VALUE").into()),
        None => Ok(options),
    }
}
