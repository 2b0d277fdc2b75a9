//! Rules of command lines, and the table of names that they need.

use carina_wrap::name_table::NameTable;
use carina_wrap::rule::Rule;

use crate::Shared;
use crate::failure::{Attempt, Failure, usage};

/// Checks that each of the rules can be used.
///
/// # Errors
/// A rule before it fits everything that a rule fits.
pub(super) fn check(rules: &[Rule]) -> Result<(), Failure> {
    let is_hidden = |at: &usize| rules[..*at].iter().any(|first| first.shadows(&rules[*at]));
    match (0..rules.len()).find(is_hidden).map(|at| &rules[at]) {
        Some(rule) => Err(usage(format!(
            "rule {:?} is never used: a rule before it fits everything that it fits",
            rule.to_string()
        ))),
        None => Ok(()),
    }
}

/// The rule of `carina wrap` and `carina proxy` without `--rule`: names below `dif.internal` become
/// flows.
pub(super) fn default_rule() -> Result<Rule, Failure> {
    DEFAULT_RULE
        .parse::<Rule>()
        .attempt("reading the default rule")
}

/// Finds this user's name table, which maps host names to the addresses that stand for them.
///
/// # Errors
/// The directory of the table cannot be made, or belongs to another user.
pub(super) fn name_table(shared: &Shared) -> Result<NameTable, Failure> {
    NameTable::of_user(shared.run_dir().path()).attempt("finding the table of names")
}

const DEFAULT_RULE: &str = "*.dif.internal -> dif as {name}:{port}";
