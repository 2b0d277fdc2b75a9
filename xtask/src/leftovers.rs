//! What a machine holds that tests make and have to remove.

use std::collections::BTreeSet;
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

    /// What has come since `before`.
    pub(crate) fn added_since<'a>(
        &'a self,
        before: &'a Inventory,
    ) -> impl Iterator<Item = &'a String> {
        self.things.difference(&before.things)
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
        let added: Vec<_> = after.added_since(&before).collect();
        let wanted = named("file", &directory.join("left"));
        assert!(added.contains(&&wanted), "{added:?}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
