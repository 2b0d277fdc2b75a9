//! A program with its own policies. It registers them, lists the policies that a DIF can choose
//! from, and checks configurations that name them.
//!
//! ```text
//! cargo run -p carina-policy-example --example longest_queue
//! ```
//!
//! `tests/members.rs` runs an IPC process with this catalogue.
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use carina_ipcp::policy::component::RMT_SCHEDULING;
use carina_ipcp::{Catalogue, DifConfig, PolicySpec};

/// Runs the example; a test calls it too.
pub(crate) fn main() {
    let mut catalogue = Catalogue::standard();
    carina_policy_example::register(&mut catalogue);
    println!("{RMT_SCHEDULING} is one of:");
    for policy in catalogue.policies(RMT_SCHEDULING) {
        println!("  {:14} {}", policy.name, policy.help);
    }
    for every in ["8", "1"] {
        let spec = PolicySpec {
            name: "longest-queue".into(),
            params: [("oldest-every".into(), every.into())].into(),
        };
        let mut config = DifConfig::default();
        config.policies.insert(RMT_SCHEDULING.into(), spec);
        match catalogue.check(&config) {
            Ok(()) => println!("oldest-every={every}: a DIF can have it"),
            Err(error) => println!("oldest-every={every}: refused: {error}"),
        }
    }
}
