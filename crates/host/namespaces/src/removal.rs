//! Ends the processes in namespaces, and removes the namespaces.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::namespace::NamespaceAccess;
use crate::process::{GRACE, end_all};

/// Ends the processes in the named namespaces, and removes the namespaces that exist.
///
/// # Errors
/// `ip` is missing, or a namespace cannot be removed.
pub fn remove_namespaces(access: &NamespaceAccess, names: &[String]) -> Result<()> {
    let lines = end_processes_in(access, names)?.into_iter();
    let lines: Vec<String> = lines.map(|name| format!("netns del {name}")).collect();
    access.ip_lines(&lines)
}

/// Ends the processes in the named namespaces, except this process. Returns the names of the
/// namespaces that exist.
///
/// # Errors
/// `ip` is missing.
pub fn end_processes_in<'a>(
    access: &NamespaceAccess,
    names: &'a [String],
) -> Result<Vec<&'a String>> {
    let existing = access.list()?;
    let own = std::process::id().cast_signed();
    let existing: BTreeSet<String> = existing.into_iter().collect();
    let existing: Vec<&String> = names
        .iter()
        .filter(|name| existing.contains(*name))
        .collect();
    if !existing.is_empty() {
        let mut inside = access.processes_in(&existing);
        inside.retain(|process| process.pid != own);
        end_all(&inside, GRACE);
    }
    Ok(existing)
}
