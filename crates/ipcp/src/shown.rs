//! Objects of the RIB as tools see them: their fields, and where they stand.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::api::{RibObject, Scalar};

/// A field that is text.
pub(crate) fn text(name: &str, value: &str) -> (String, Scalar) {
    (name.to_string(), Scalar::Text(value.to_string()))
}

/// A field that is a number.
pub(crate) fn uint(name: &str, value: u64) -> (String, Scalar) {
    (name.to_string(), Scalar::Uint(value))
}

/// A field that is yes or no.
pub(crate) fn flag(name: &str, value: bool) -> (String, Scalar) {
    (name.to_string(), Scalar::Bool(value))
}

/// A name of a member or an application as one part of a path.
pub(crate) fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// Levels of `path` below `top`; `None` when it is not below.
pub(crate) fn depth_below(top: &str, path: &str) -> Option<u32> {
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

/// Objects at `path` and down to `scope` levels below it.
pub(crate) fn in_scope(objects: Vec<RibObject>, path: &str, scope: u32) -> Vec<RibObject> {
    let is_meant =
        |object: &RibObject| depth_below(path, &object.path).is_some_and(|depth| depth <= scope);
    objects.into_iter().filter(is_meant).collect()
}

/// The objects that a filter lets pass: `FIELD=VALUE` or `class=CLASS`, several joined by `&`; an
/// empty one passes all. A list has a value when one of its items is it.
///
/// # Errors
/// It is no filter.
pub(crate) fn passing(mut objects: Vec<RibObject>, filter: &str) -> Result<Vec<RibObject>, String> {
    for term in filter.split('&').filter(|term| !term.is_empty()) {
        let Some((field, wanted)) = term.split_once('=') else {
            return Err(format!(
                "the filter {term:?} is neither FIELD=VALUE nor class=CLASS"
            ));
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
