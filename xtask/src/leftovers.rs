//! What a machine holds that tests make and have to remove.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Named network namespaces, interfaces, mounts, shared memory and files, at one moment.
pub(crate) struct Inventory {
    things: BTreeSet<String>,
}

/// Places whose entries are looked at, and what an entry is.
const PLACES: [(&str, &str); 3] = [
    ("/run/netns", "network namespace"),
    ("/sys/class/net", "interface"),
    ("/dev/shm", "shared memory"),
];

/// The directory in which the product keeps templates of VMs for its next start
/// (`carina_vm::template`). It stays when it was there before the tests: it is then the user's.
pub(crate) struct Templates {
    directory: PathBuf,
    is_of_user: bool,
}

impl Templates {
    /// The directory of this user, before any test runs.
    pub(crate) fn before_tests() -> Templates {
        let set = std::env::var_os("CARINA_TEMPLATES").filter(|value| !value.is_empty());
        let directory = set.map_or_else(
            || {
                let user = rustix::process::geteuid().as_raw();
                PathBuf::from(format!("/dev/shm/carina-templates-{user}"))
            },
            PathBuf::from,
        );
        Templates {
            is_of_user: directory.exists(),
            directory,
        }
    }

    /// Removes the directory if the tests have made it.
    ///
    /// # Errors
    ///
    /// The file system's, with the directory.
    pub(crate) fn remove(self) -> Result<(), String> {
        if self.is_of_user {
            return Ok(());
        }
        match std::fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!(
                "{} cannot be removed: {error}",
                self.directory.display()
            )),
            _ => Ok(()),
        }
    }
}

impl Inventory {
    /// Looks at the machine; `temporary` is the directory that the tests use for files.
    pub(crate) fn take(temporary: &Path) -> Inventory {
        let mut things = BTreeSet::new();
        for (place, what) in PLACES {
            things.extend(entries(Path::new(place)).map(|path| named(what, &path)));
        }
        things.extend(entries(temporary).map(|path| named("file", &path)));
        // Run directories of commands that were given none.
        let outside = temporary.parent().unwrap_or(Path::new("/tmp"));
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("carina-")
        };
        things.extend(
            entries(outside)
                .filter(is_ours)
                .map(|path| named("file", &path)),
        );
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        things.extend(mounts.map(|place| named("mount", Path::new(place))));
        Inventory { things }
    }

    /// What has come since `before`, without the directory of templates, which goes last.
    pub(crate) fn added_since<'a>(
        &'a self,
        before: &'a Inventory,
        templates: &Templates,
    ) -> impl Iterator<Item = &'a String> {
        let kept = named("shared memory", &templates.directory);
        let added = self.things.difference(&before.things);
        added.filter(move |thing| **thing != kept)
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

fn named(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_came_is_named() {
        let directory = std::env::temp_dir().join(format!("xtask-left-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let before = Inventory::take(&directory);
        std::fs::write(directory.join("left"), b"").unwrap();
        let after = Inventory::take(&directory);
        let added: Vec<_> = after
            .added_since(&before, &Templates::before_tests())
            .collect();
        let wanted = named("file", &directory.join("left"));
        assert!(added.contains(&&wanted), "{added:?}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn templates_of_tests_go_and_those_of_the_user_stay() {
        let directory = std::env::temp_dir().join(format!("xtask-images-{}", std::process::id()));
        for is_of_user in [false, true] {
            std::fs::create_dir_all(directory.join("template")).unwrap();
            let templates = Templates {
                directory: directory.clone(),
                is_of_user,
            };
            templates.remove().unwrap();
            assert_eq!(directory.exists(), is_of_user);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
