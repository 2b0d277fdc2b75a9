//! Dissects CDAP messages (*CDAP: Common Distributed Application Protocol Reference*, Pouzin
//! Society).

use carina_cdap::{Flag, Message, Party, Rules, Value};

use super::layer::{Layer, show_bytes};
use super::{protobuf, schema};

/// The layer of a message; `None` when the bytes are not a CDAP message.
pub(super) fn dissect(bytes: &[u8]) -> Option<Layer> {
    let message = read(bytes)?;
    let mut layer = Layer::new("cdap", gist(&message));
    layer.field("opcode", message.opcode.name());
    if message.invoke_id != 0 {
        layer.field("invoke_id", message.invoke_id);
    }
    match message.flag {
        Flag::None => {}
        Flag::Sync => layer.field("flag", "sync"),
        Flag::ReadIncomplete => layer.field("flag", "read_incomplete"),
    }
    layer.text("src", &party(&message.src));
    layer.text("dst", &party(&message.dst));
    layer.text("class", &message.class);
    layer.text("name", &message.name);
    if message.instance != 0 {
        layer.field("instance", message.instance);
    }
    if message.scope != 0 {
        layer.field("scope", message.scope);
    }
    if !message.filter.is_empty() {
        layer.field("filter", show_bytes(&message.filter));
    }
    if let Some(value) = &message.value {
        layer.field("value", show_value(&message.class, value));
    }
    if let Some(auth) = &message.auth {
        layer.text("auth_policy", &auth.name);
        // The authentication value may help to guess a secret; its length is enough to follow the
        // exchange.
        layer.field("auth_bytes", auth.value.len());
    }
    if message.opcode.is_response() {
        layer.field("result", message.result);
    }
    layer.text("reason", &message.reason);
    Some(layer)
}

/// Decodes a message by the rules of any dialect.
fn read(bytes: &[u8]) -> Option<Message> {
    let all = [Rules::NATIVE, Rules::RLITE, Rules::IRATI];
    all.iter().find_map(|rules| rules.decode(bytes).ok())
}

fn gist(message: &Message) -> String {
    let mut text = message.opcode.name().to_owned();
    if message.invoke_id != 0 {
        text += &format!(" #{}", message.invoke_id);
    }
    if !message.src.is_empty() {
        text += &format!(" {} > {}", message.src.ap, message.dst.ap);
    }
    if !message.name.is_empty() {
        text += &format!(" {}", message.name);
    }
    if message.scope != 0 {
        text += &format!(" scope {}", message.scope);
    }
    if message.flag == Flag::ReadIncomplete {
        text += " more follows";
    }
    if message.result != 0 {
        text += &format!(" result {}", message.result);
    }
    if !message.reason.is_empty() {
        text += &format!(" {:?}", message.reason);
    }
    text
}

fn party(party: &Party) -> String {
    let parts = [&party.ap, &party.api, &party.ae, &party.aei];
    let used = parts.iter().rposition(|part| !part.is_empty());
    let used = used.map_or(0, |last| last + 1);
    let parts: Vec<&str> = parts[..used].iter().map(|part| part.as_str()).collect();
    parts.join("|")
}

/// In DIFs of rlite and IRATI a message may carry another one to a member that is not a neighbour.
/// Returns the carried message.
pub(super) fn carried(bytes: &[u8]) -> Option<Vec<u8>> {
    let message = read(bytes)?;
    match message.value {
        Some(Value::Bytes(value)) if message.class == "a_data" => protobuf::bytes_of(&value, 3),
        _ => None,
    }
}

fn show_value(class: &str, value: &Value) -> String {
    match value {
        Value::Int(v) | Value::Sint(v) => v.to_string(),
        Value::Int64(v) | Value::Sint64(v) => v.to_string(),
        Value::Text(v) => format!("{v:?}"),
        Value::Bytes(v) => {
            let known = schema::of_class(class).and_then(|known| protobuf::describe_as(known, v));
            known
                .or_else(|| protobuf::describe(v))
                .unwrap_or_else(|| show_bytes(v))
        }
        Value::Float(v) => v.to_string(),
        Value::Double(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
    }
}
