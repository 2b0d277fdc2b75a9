//! Translates the QoS cubes of an IRATI template.

use serde_json::{Map, Value, json};

use crate::error::Reason;
use crate::json::Node;

/// Settings without an equivalent in Carina: line, setting, reason.
type Unlike = Vec<(usize, String, String)>;

/// The cube in the format of Carina's configuration, and its settings without an equivalent.
pub(super) fn cube(from: &Node) -> Result<(Value, Unlike), Reason> {
    let id = from.number_of("id").ok_or("a cube needs an `id`")?;
    let name = from.text_of("name").ok_or("a cube needs a `name`")?;
    let mut notes = Vec::new();
    let mut made = Map::new();
    made.insert("id".to_owned(), id.into());
    made.insert("name".to_owned(), name.into());
    if let Some(in_order) = from.flag_of("orderedDelivery") {
        made.insert("in_order".to_owned(), in_order.into());
    }
    if let Some(partial) = from.flag_of("partialDelivery") {
        made.insert("partial_delivery".to_owned(), partial.into());
    }
    if let Some(gap) = from.number_of("maxAllowableGap") {
        made.insert("max_sdu_gap".to_owned(), gap.into());
    }
    if let Some(delay) = from.number_of("delay") {
        made.insert("max_delay_us".to_owned(), delay.saturating_mul(1000).into());
    }
    if let Some(loss) = from.number_of("loss") {
        made.insert("max_loss".to_owned(), loss.into());
    }
    unlike(from, name, &CUBE, &mut notes);
    if let Some(policies) = from.get("efcpPolicies") {
        efcp(policies, name, &mut made, &mut notes);
    }
    Ok((Value::Object(made), notes))
}

/// Notes the keys that are not translated: those without an equivalent, and unknown ones.
fn unlike(table: &Node, cube: &str, known: &[&str], notes: &mut Unlike) {
    for (key, line, _) in table.fields() {
        if !known.contains(&key.as_str()) {
            let why = match key.as_str() {
                "averageBandwidth"
                | "averageSDUBandwidth"
                | "peakBandwidthDuration"
                | "peakSDUBandwidthDuration"
                | "undetectedBitErrorRate"
                | "jitter" => "a cube promises no such thing here".to_owned(),
                "maxTimeToRetry" => {
                    "it follows from the number of attempts and the first pause".to_owned()
                }
                _ => crate::no_such_key("a cube", "key", key, known),
            };
            notes.push((*line, format!("cube {cube}: {key}"), why));
        }
    }
}

/// Known keys of a cube, and of the tables in it.
const CUBE: [&str; 8] = [
    "id",
    "name",
    "orderedDelivery",
    "partialDelivery",
    "maxAllowableGap",
    "delay",
    "loss",
    "efcpPolicies",
];
const EFCP: [&str; 4] = [
    "dtpPolicySet",
    "initialATimer",
    "dtcpPresent",
    "dtcpConfiguration",
];
const DTCP: [&str; 5] = [
    "dtcpPolicySet",
    "rtxControl",
    "rtxControlConfig",
    "flowControl",
    "flowControlConfig",
];
const RETRANSMISSION: [&str; 2] = ["dataRxmsNmax", "initialRtxTime"];
const FLOW_CONTROL: [&str; 4] = [
    "windowBased",
    "windowBasedConfig",
    "rateBased",
    "rateBasedConfig",
];
// IRATI keeps one PDU in the queue of a closed window, whatever `maxClosedWindowQueueLength` says;
// Carina's queue is bounded by memory.
const WINDOW: [&str; 2] = ["maxClosedWindowQueueLength", "initialCredit"];
const RATE: [&str; 2] = ["sendingRate", "timePeriod"];

fn efcp(policies: &Node, name: &str, made: &mut Map<String, Value>, notes: &mut Unlike) {
    if let Some(a) = policies.number_of("initialATimer") {
        made.insert("initial_a_ms".to_owned(), a.into());
    }
    unlike(policies, name, &EFCP, notes);
    usual_set(policies, "dtpPolicySet", name, notes);
    let is_present = policies.flag_of("dtcpPresent").unwrap_or(false);
    if !is_present {
        let why = "IRATI delivers nothing in a cube without DTCP";
        let what = format!("cube {name}: dtcpPresent false");
        notes.push((policies.line, what, why.to_owned()));
    }
    let Some(dtcp) = policies.get("dtcpConfiguration").filter(|_| is_present) else {
        return;
    };
    unlike(dtcp, name, &DTCP, notes);
    usual_set(dtcp, "dtcpPolicySet", name, notes);
    if dtcp.flag_of("rtxControl") == Some(true) {
        made.insert("retransmission".to_owned(), true.into());
        if let Some(config) = dtcp.get("rtxControlConfig") {
            retransmission(config, name, made, notes);
        }
    }
    if dtcp.flag_of("flowControl") != Some(true) {
        return;
    }
    let Some(config) = dtcp.get("flowControlConfig") else {
        return;
    };
    flow_control(config, name, made, notes);
}

fn retransmission(config: &Node, name: &str, made: &mut Map<String, Value>, notes: &mut Unlike) {
    unlike(config, name, &RETRANSMISSION, notes);
    let number = |key| config.number_of(key);
    if let (Some(count), Some(first)) = (number("dataRxmsNmax"), number("initialRtxTime")) {
        // The pause before retransmission number n is the first pause times 1 + n squared.
        let pauses = (0..count.min(64)).map(|n| 1 + n * n).sum::<u64>();
        let all = first.saturating_mul(pauses);
        made.insert("retransmit_ms".to_owned(), all.into());
    }
}

fn flow_control(config: &Node, name: &str, made: &mut Map<String, Value>, notes: &mut Unlike) {
    unlike(config, name, &FLOW_CONTROL, notes);
    if config.flag_of("windowBased") == Some(true) {
        let window = config.get("windowBasedConfig");
        if let Some(window) = window {
            unlike(window, name, &WINDOW, notes);
        }
        let credit = window.and_then(|window| window.number_of("initialCredit"));
        let credit = credit.unwrap_or(CREDIT);
        let window = json!({ "credit_max": credit, "initial_credit": credit });
        made.insert("window".to_owned(), window);
    }
    if config.flag_of("rateBased") == Some(true)
        && let Some(rate) = config.get("rateBasedConfig")
    {
        unlike(rate, name, &RATE, notes);
        let (pdus, frame) = (rate.number_of("sendingRate"), rate.number_of("timePeriod"));
        if let (Some(pdus), Some(frame)) = (pdus, frame) {
            made.insert(
                "rate".to_owned(),
                json!({ "pdus": pdus, "frame_ms": frame }),
            );
        }
    }
}

/// Notes a policy set other than `default`, which has no equivalent.
fn usual_set(at: &Node, key: &str, cube: &str, notes: &mut Unlike) {
    let Some(set) = at.get(key) else { return };
    let name = set.text_of("name").unwrap_or_default();
    if name != "default" {
        let what = format!("cube {cube}: {key} {name}");
        notes.push((
            set.line,
            what,
            "there is the policy set `default` only".to_owned(),
        ));
    }
}

/// Initial credit of a window for which the template gives none.
const CREDIT: u64 = 50;
