//! Ends the processes in namespaces, and removes the namespaces.

use crate::error::Result;
use crate::namespace::NamespaceAccess;
use crate::process::{GRACE, Process, end_all};

/// Ends the processes in the named namespaces, and removes the namespaces that exist.
///
/// # Errors
/// `ip` is missing, or a namespace cannot be removed.
pub fn remove_namespaces(access: &NamespaceAccess, names: &[String]) -> Result<()> {
    for name in end_processes_in(access, names)? {
        access.ip(&["netns", "del", name])?;
    }
    Ok(())
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
    let mut inside = Vec::new();
    let existing: Vec<&String> = names
        .iter()
        .filter(|name| existing.contains(name))
        .collect();
    for name in &existing {
        let processes = access
            .processes_in(name)
            .into_iter()
            .filter(|pid| *pid != own);
        inside.extend(processes.filter_map(Process::numbered));
    }
    end_all(&inside, GRACE);
    Ok(existing)
}
