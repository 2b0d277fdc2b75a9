//! Programs of other projects that a benchmark compares with.

use std::env;

/// Whether a program of this name is in a directory of `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
