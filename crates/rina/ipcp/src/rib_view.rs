//! RIB objects as tools see them: their fields and paths.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::api::{RibObject, Scalar};
use crate::config::{DifConfig, QosCube};

/// Makes a RIB object's field whose value is a text.
pub fn text(name: &str, value: &str) -> (String, Scalar) {
    (name.to_string(), Scalar::Text(value.to_string()))
}

/// Makes a RIB object's field whose value is a number of 0 or more.
pub fn uint(name: &str, value: u64) -> (String, Scalar) {
    (name.to_string(), Scalar::Uint(value))
}

/// Makes a RIB object's field whose value is `true` or `false`.
pub fn flag(name: &str, value: bool) -> (String, Scalar) {
    (name.to_string(), Scalar::Bool(value))
}

/// The fields of the configuration that members agree on, without cubes and policies.
pub fn agreed(config: &DifConfig, max_pdu: u64) -> Vec<(String, Scalar)> {
    let DifConfig {
        widths,
        max_pdu: _,
        max_pdu_lifetime_ms,
        hop_limit,
        concatenation,
        keepalive_ms,
        cubes: _,
        policies: _,
    } = config;
    alloc::vec![
        uint("max_pdu", max_pdu),
        uint("max_pdu_lifetime_ms", u64::from(*max_pdu_lifetime_ms)),
        uint("hop_limit", u64::from(*hop_limit)),
        flag("concatenation", *concatenation),
        uint("keepalive_ms", u64::from(*keepalive_ms)),
        uint("address_bytes", u64::from(widths.address)),
        uint("cep_bytes", u64::from(widths.cep)),
        uint("qos_bytes", u64::from(widths.qos)),
        uint("seq_bytes", u64::from(widths.seq)),
        uint("ctrl_seq_bytes", u64::from(widths.ctrl_seq)),
        uint("length_bytes", u64::from(widths.length)),
        uint("rate_bytes", u64::from(widths.rate)),
        uint("frame_bytes", u64::from(widths.frame)),
    ]
}

/// The fields of a QoS cube's RIB object, as names and values. The cube's id is not among them,
/// because it is in the path of the object. An option that is `None`, such as `window`, gives no
/// field.
pub fn cube(cube: &QosCube) -> Vec<(String, Scalar)> {
    let QosCube {
        id: _,
        name,
        in_order,
        retransmission,
        window,
        rate,
        max_sdu_gap,
        partial_delivery,
        priority,
        weight,
        ecn,
        initial_a_ms,
        retransmit_ms,
        max_delay_us,
        max_loss,
    } = cube;
    let mut fields = alloc::vec![
        text("name", name),
        flag("in_order", *in_order),
        flag("retransmission", *retransmission),
        flag("partial_delivery", *partial_delivery),
        flag("ecn", *ecn),
        uint("priority", u64::from(*priority)),
        uint("weight", u64::from(*weight)),
        uint("initial_a_ms", u64::from(*initial_a_ms)),
        uint("retransmit_ms", u64::from(*retransmit_ms)),
        uint("max_delay_us", u64::from(*max_delay_us)),
        uint("max_loss", u64::from(*max_loss)),
    ];
    if let Some(window) = window {
        fields.push(uint("credit_max", u64::from(window.credit_max)));
        fields.push(uint("initial_credit", u64::from(window.initial_credit)));
    }
    if let Some(rate) = rate {
        fields.push(uint("rate_pdus", u64::from(rate.pdus)));
        fields.push(uint("rate_frame_ms", u64::from(rate.frame_ms)));
    }
    fields.extend(max_sdu_gap.map(|gap| uint("max_sdu_gap", gap)));
    fields
}

/// Encodes the name of a member or application so that it can be one component of a RIB path.
pub fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// Returns how many levels `path` is below `top`; `None` when it is not below.
pub fn depth_below(top: &str, path: &str) -> Option<u32> {
    let rest = match (top, path) {
        ("/", "/") => "",
        ("/", _) => path,
        _ => path.strip_prefix(top)?,
    };
    if !rest.is_empty() && !rest.starts_with('/') {
        return None;
    }
    u32::try_from(rest.matches('/').count()).ok()
}

/// Selects from `objects` the object at `path` and the objects up to `scope` levels below it.
pub fn in_scope(objects: Vec<RibObject>, path: &str, scope: u32) -> Vec<RibObject> {
    let is_meant =
        |object: &RibObject| depth_below(path, &object.path).is_some_and(|depth| depth <= scope);
    objects.into_iter().filter(is_meant).collect()
}

/// Why a read of the RIB fails.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no object at this path.
    NoObject(String),
    /// This term of the filter is neither `FIELD=VALUE` nor `class=CLASS`.
    Filter(String),
    /// The filter is not UTF-8.
    FilterEncoding,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NoObject(path) => write!(f, "there is no object {path:?}"),
            ReadError::Filter(term) => write!(
                f,
                "the filter {term:?} is neither FIELD=VALUE nor class=CLASS"
            ),
            ReadError::FilterEncoding => f.write_str("the filter is no text"),
        }
    }
}

impl core::error::Error for ReadError {}

/// Selects the objects that match `filter`: `FIELD=VALUE` or `class=CLASS`, several joined by `&`.
/// An empty filter matches all objects. A list field matches when one of its items equals the
/// value.
///
/// # Errors
/// The filter is malformed.
pub fn passing(mut objects: Vec<RibObject>, filter: &str) -> Result<Vec<RibObject>, ReadError> {
    for term in filter.split('&').filter(|term| !term.is_empty()) {
        let Some((field, wanted)) = term.split_once('=') else {
            return Err(ReadError::Filter(term.to_string()));
        };
        objects.retain(|object| match field {
            "class" => object.class == wanted,
            _ => object
                .fields
                .iter()
                .any(|(name, value)| name == field && is_value(value, wanted)),
        });
    }
    Ok(objects)
}

fn is_value(value: &Scalar, wanted: &str) -> bool {
    match value {
        Scalar::List(list) => list.iter().any(|item| item == wanted),
        one => one.to_text() == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::{depth_below, passing, text, uint};
    use crate::api::{RibObject, Scalar};
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn filters_go_by_class_and_by_fields() {
        let objects = || -> Vec<RibObject> {
            let next = Scalar::List(vec!["7".to_string(), "9".to_string()]);
            let fields = vec![
                text("name", "a=b"),
                uint("cost", 3),
                ("next".to_string(), next),
            ];
            let object = |path: &str, class: &str, fields| RibObject {
                path: path.to_string(),
                class: class.to_string(),
                fields,
            };
            vec![
                object("/a", "link", fields),
                object("/b", "route", vec![uint("cost", 3)]),
            ]
        };
        let found = |filter: &str| -> Vec<_> {
            let passed = passing(objects(), filter).expect("a filter").into_iter();
            passed.map(|object| object.path).collect()
        };
        assert_eq!(found(""), ["/a", "/b"]);
        assert_eq!(found("class=route"), ["/b"]);
        assert_eq!(found("cost=3&class=link"), ["/a"]);
        assert_eq!(found("name=a=b"), ["/a"]);
        assert_eq!(found("next=9"), ["/a"]);
        assert!(found("next=79").is_empty() && found("cost=33").is_empty());
        let error = passing(objects(), "cost").expect_err("no filter");
        let error = error.to_string();
        assert!(error.contains("FIELD=VALUE"), "{error}");
    }

    #[test]
    fn levels_below_a_path() {
        assert_eq!(depth_below("/", "/"), Some(0));
        assert_eq!(depth_below("/flows", "/flows"), Some(0));
        assert_eq!(depth_below("/flows", "/flows/1"), Some(1));
        assert_eq!(depth_below("/", "/dif/cubes/1"), Some(3));
        assert_eq!(depth_below("/flow", "/flows/1"), None);
        assert_eq!(depth_below("/", "flows"), None);
    }
}
