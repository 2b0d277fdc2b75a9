//! Formatting of values as TOML.

use serde_json::Value;

/// Formats a JSON value as TOML on one line. TOML has no null, so keys with a null value are left
/// out.
#[must_use]
pub fn inline(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(key, value)| format!("{} = {}", quoted(key), inline(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// Formats a string as TOML. TOML has the escapes of JSON, but DEL must be escaped too.
#[must_use]
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_and_keys_without_value_left_out() {
        let value = serde_json::json!({"a": null, "b c": ["x\"\u{7f}", 1, true]});
        assert_eq!(inline(&value), r#"{ "b c" = ["x\"\u007f", 1, true] }"#);
    }
}
