//! Ends the processes in namespaces, and removes the namespaces.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::namespace::NamespaceAccess;
use crate::process::{GRACE, end_all};

/// Ends the processes in the named namespaces, and removes the namespaces that exist. Another
/// process may remove them at the same time.
///
/// # Errors
/// `ip` is missing, or a namespace cannot be removed.
pub fn remove_namespaces(access: &NamespaceAccess, names: &[String]) -> Result<()> {
    let mut before = usize::MAX;
    loop {
        let left = end_processes_in(access, names)?;
        let lines = left.iter().map(|name| format!("netns del {name}"));
        let removed = access.ip_lines_in_any_order(&lines.collect::<Vec<_>>());
        // `ip` fails for a namespace that has just been removed, and skips the lines after it.
        if removed.is_ok() || left.len() >= before {
            return removed;
        }
        before = left.len();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_can_be_removed_by_two_at_once() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let access = NamespaceAccess::of_root();
        let name = |number| format!("cv-two-{}-{number}", std::process::id());
        let names: Vec<String> = (0..60).map(name).collect();
        let lines: Vec<String> = names
            .iter()
            .map(|name| format!("netns add {name}"))
            .collect();
        access.ip_lines_in_any_order(&lines).unwrap();
        let backwards: Vec<String> = names.iter().rev().cloned().collect();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| remove_namespaces(&access, &backwards));
            remove_namespaces(&access, &names).unwrap();
            other.join().unwrap().unwrap();
        });
        let left = access.list().unwrap();
        assert!(
            !left.iter().any(|candidate| names.contains(candidate)),
            "{left:?}"
        );
    }
}
