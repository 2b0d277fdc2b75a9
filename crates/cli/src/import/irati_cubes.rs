//! QoS cubes of an IRATI template.

use serde_json::{Map, Value, json};

use super::json::Node;

/// What has no like: line, what, why.
type Unlike = Vec<(usize, String, String)>;

/// A cube as Carina's configuration has it, and what of it has no like.
pub(super) fn cube(from: &Node) -> Result<(Value, Unlike), String> {
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
    for (key, line, _) in from.fields() {
        let known = [
            "id",
            "name",
            "orderedDelivery",
            "partialDelivery",
            "maxAllowableGap",
            "delay",
            "loss",
            "efcpPolicies",
        ];
        if !known.contains(&key.as_str()) {
            let why = "a cube promises no such thing here";
            notes.push((*line, format!("cube {name}: {key}"), why.to_owned()));
        }
    }
    if let Some(policies) = from.get("efcpPolicies") {
        efcp(policies, name, &mut made, &mut notes);
    }
    Ok((Value::Object(made), notes))
}

fn efcp(policies: &Node, name: &str, made: &mut Map<String, Value>, notes: &mut Unlike) {
    if let Some(a) = policies.number_of("initialATimer") {
        made.insert("initial_a_ms".to_owned(), a.into());
    }
    for key in ["dtpPolicySet", "dtcpPolicySet"] {
        usual_set(policies, key, name, notes);
    }
    let is_present = policies.flag_of("dtcpPresent").unwrap_or(false);
    let Some(dtcp) = policies.get("dtcpConfiguration").filter(|_| is_present) else {
        return;
    };
    usual_set(dtcp, "dtcpPolicySet", name, notes);
    if dtcp.flag_of("rtxControl") == Some(true) {
        made.insert("retransmission".to_owned(), true.into());
        let config = dtcp.get("rtxControlConfig");
        let number = |key| config.and_then(|config| config.number_of(key));
        let (count, first) = (number("dataRxmsNmax"), number("initialRtxTime"));
        if let (Some(count), Some(first)) = (count, first) {
            // Each pause is the first one times 1 + n squared.
            let pauses = (0..count.min(64)).map(|n| 1 + n * n).sum::<u64>();
            made.insert("retransmit_ms".to_owned(), (first * pauses).into());
        }
    }
    if dtcp.flag_of("flowControl") != Some(true) {
        return;
    }
    let Some(config) = dtcp.get("flowControlConfig") else {
        return;
    };
    if config.flag_of("windowBased") == Some(true) {
        let credit = config
            .get("windowBasedConfig")
            .and_then(|window| window.number_of("initialCredit"));
        let credit = credit.unwrap_or(CREDIT);
        let window = json!({ "credit_max": credit, "initial_credit": credit });
        made.insert("window".to_owned(), window);
    }
    if config.flag_of("rateBased") == Some(true)
        && let Some(rate) = config.get("rateBasedConfig")
    {
        let (pdus, frame) = (rate.number_of("sendingRate"), rate.number_of("timePeriod"));
        if let (Some(pdus), Some(frame)) = (pdus, frame) {
            made.insert(
                "rate".to_owned(),
                json!({ "pdus": pdus, "frame_ms": frame }),
            );
        }
    }
}

/// Policy sets other than the usual one have no like.
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

/// Credit of a window that says none.
const CREDIT: u64 = 50;
