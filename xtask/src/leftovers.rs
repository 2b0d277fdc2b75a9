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

/// Mounts that the first use of a system facility makes, and that stay: `ip netns add` and all that
/// does the same mount this directory on itself.
const MOUNTS_THAT_STAY: [&str; 1] = ["/run/netns"];

/// The directories in which the product keeps data of this user for its next start: templates of
/// VMs (`carina_vm::template`), and addresses of names (`carina_wrap::name_table`). One that was
/// there before the tests is the user's, and stays.
pub(crate) struct KeptData {
    /// Each directory, and whether it is the user's.
    directories: Vec<(PathBuf, bool)>,
}

impl KeptData {
    /// The directories of this user, before any test runs.
    pub(crate) fn before_tests() -> KeptData {
        let user = rustix::process::geteuid().as_raw();
        let set = std::env::var_os("CARINA_TEMPLATES").filter(|value| !value.is_empty());
        let templates = set.map_or_else(
            || PathBuf::from(format!("/dev/shm/carina-templates-{user}")),
            PathBuf::from,
        );
        KeptData::of([templates, PathBuf::from(format!("/tmp/carina-{user}"))])
    }

    fn of(directories: impl IntoIterator<Item = PathBuf>) -> KeptData {
        let with_owner = |directory: PathBuf| {
            let is_of_user = directory.exists();
            (directory, is_of_user)
        };
        KeptData {
            directories: directories.into_iter().map(with_owner).collect(),
        }
    }

    /// Whether a thing of an inventory is one of the directories.
    fn has(&self, thing: &str) -> bool {
        let path = thing.find(" /").map(|at| Path::new(&thing[at + 1..]));
        self.directories
            .iter()
            .any(|(own, _)| Some(own.as_path()) == path)
    }

    /// Removes the directories that the tests have made.
    ///
    /// # Errors
    ///
    /// The file system's, with the directory.
    pub(crate) fn remove(self) -> Result<(), String> {
        for (directory, is_of_user) in self.directories {
            if is_of_user {
                continue;
            }
            match std::fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!(
                        "{} cannot be removed: {error}",
                        directory.display()
                    ));
                }
                _ => {}
            }
        }
        Ok(())
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
        let mounts = mounts.filter(|place| !MOUNTS_THAT_STAY.contains(place));
        things.extend(mounts.map(|place| named("mount", Path::new(place))));
        Inventory { things }
    }

    /// What has come since `before`, without the directories of `kept`, which go last.
    pub(crate) fn added_since<'a>(
        &'a self,
        before: &'a Inventory,
        kept: &KeptData,
    ) -> impl Iterator<Item = &'a String> {
        let added = self.things.difference(&before.things);
        added.filter(move |thing| !kept.has(thing))
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
        let kept = KeptData::of([directory.join("kept")]);
        for name in ["left", "kept"] {
            std::fs::write(directory.join(name), b"").unwrap();
        }
        let after = Inventory::take(&directory);
        let added: Vec<_> = after.added_since(&before, &kept).collect();
        let file = |name| named("file", &directory.join(name));
        assert!(added.contains(&&file("left")), "{added:?}");
        assert!(!added.contains(&&file("kept")), "{added:?}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn data_of_tests_goes_and_that_of_the_user_stays() {
        let directory = std::env::temp_dir().join(format!("xtask-kept-{}", std::process::id()));
        let [users, tests] = ["users", "tests"].map(|name| directory.join(name));
        std::fs::create_dir_all(users.join("template")).unwrap();
        let never_made = directory.join("never");
        let kept = KeptData::of([users.clone(), tests.clone(), never_made]);
        std::fs::create_dir_all(tests.join("template")).unwrap();
        kept.remove().unwrap();
        assert!(users.join("template").exists() && !tests.exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
