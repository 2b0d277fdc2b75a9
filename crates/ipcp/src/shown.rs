//! Objects of the RIB as tools see them: their fields, and where they stand.

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

#[cfg(test)]
mod tests {
    use super::depth_below;

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
