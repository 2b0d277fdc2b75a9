//! Field widths of rlite's flavours, which are compiled into its modules.

use serde_json::{Value, json};

/// The widths of the flavour of a type such as `normal-tiny`; `None` for one that is not known.
pub(super) fn widths(kind: &str) -> Option<Value> {
    match kind {
        "normal" => Some(Value::Null),
        "normal-tiny" => Some(json!({
            "address": 1, "seq": 2, "ctrl_seq": 2, "length": 2, "cep": 1, "qos": 1,
        })),
        _ => None,
    }
}
