//! Programs of other projects that a benchmark compares with.

use std::env;
use std::path::{Path, PathBuf};

/// Whether a program of this name is in a directory of `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    found(program).is_some()
}

/// The path of a program in a directory of `PATH`.
pub(crate) fn found(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut paths = env::split_paths(&path).map(|directory| directory.join(program));
    paths.find(|path| path.is_file())
}

/// The path of a program in a directory of the system, also where `PATH` lacks the directories of
/// root's programs.
pub(crate) fn path_of(program: &str) -> Option<PathBuf> {
    let directories = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    let mut paths = directories
        .map(|directory| Path::new(directory).join(program))
        .into_iter();
    paths.find(|path| path.is_file())
}
