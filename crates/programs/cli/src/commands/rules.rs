//! Rules of command lines, and the table of names that they need.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use carina_wrap::name_table::NameTable;
use carina_wrap::rule::Rule;

use crate::Shared;
use crate::failure::{Attempt, Failure, failed, usage};

/// Checks that each of the rules can be used.
///
/// # Errors
/// A rule before it fits everything that a rule fits.
pub(super) fn check(rules: &[Rule]) -> Result<(), Failure> {
    let is_hidden = |at: &usize| rules[..*at].iter().any(|first| first.hides(&rules[*at]));
    match (0..rules.len()).find(is_hidden).map(|at| &rules[at]) {
        Some(rule) => Err(usage(format!(
            "rule {:?} is never used: a rule before it fits everything that it fits",
            rule.to_string()
        ))),
        None => Ok(()),
    }
}

/// What becomes a flow without `--rule`.
pub(super) fn default_rule() -> Result<Rule, Failure> {
    DEFAULT_RULE
        .parse::<Rule>()
        .attempt("reading the default rule")
}

/// The table of names of this user.
///
/// # Errors
/// No directory of the user's own can be made.
pub(super) fn name_table(shared: &Shared) -> Result<NameTable, Failure> {
    let directory = names_directory(shared.run_dir().path())?;
    Ok(NameTable::new(directory.join("names")))
}

/// The directory of the table of names: the run directory if it is this user's, else one of the
/// user's own.
fn names_directory(run: &Path) -> Result<PathBuf, Failure> {
    let uid = rustix::process::geteuid().as_raw();
    let is_own = |path: &Path| {
        let metadata = path.symlink_metadata();
        metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid)
    };
    if is_own(run) {
        return std::path::absolute(run).attempt("finding the run directory");
    }
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => Path::new(&directory).join("carina"),
        _ => PathBuf::from(format!("/tmp/carina-{uid}")),
    };
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&directory);
    made.attempt(format!("making {}", directory.display()))?;
    if !is_own(&directory) {
        return Err(failed(format!(
            "{} belongs to another user; set XDG_RUNTIME_DIR to a directory of your own",
            directory.display()
        )));
    }
    Ok(directory)
}

const DEFAULT_RULE: &str = "*.dif.internal -> dif as {name}:{port}";
