//! Field widths of rlite's flavours. In rlite they are compiled into its kernel modules.

use serde_json::{Value, json};

/// The field widths of a flavour, named by its type such as `normal-tiny`; `None` for an unknown
/// type.
pub(super) fn widths(kind: &str) -> Option<Value> {
    match kind {
        "normal" => Some(Value::Null),
        "normal-tiny" => Some(json!({
            "address": 1, "seq": 2, "ctrl_seq": 2, "length": 2, "cep": 1, "qos": 1,
        })),
        _ => None,
    }
}
