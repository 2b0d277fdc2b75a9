//! Names that are fit for files, hosts and interfaces.

use super::limits::{INTERFACE_MAX, NAME_MAX};

/// Whether a network, a node or an access point can have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let ends = !name.starts_with('-') && !name.ends_with('-');
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(inside) && ends
}

/// Whether an interface of a node can have this name.
#[must_use]
pub fn is_interface(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_path = name == "." || name == "..";
    (1..=INTERFACE_MAX).contains(&name.len()) && name.chars().all(inside) && !is_path
}
