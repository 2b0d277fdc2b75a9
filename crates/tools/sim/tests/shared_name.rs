//! Tests of a name that several members hold, in all dialects.

use carina_sim::member_factory;
use carina_sim::shared_name::SharedName;
use carina_wire::dif::Dialect;

use crate::asked::{all_hold, seeds};

fn seeds_hold(dialect: Dialect) {
    all_hold(seeds(SEEDS), |seed| {
        let run = SharedName { seed, dialect }.run(member_factory());
        run.err().map(|reason| reason.to_string())
    });
}

#[test]
fn native_name_is_known_while_one_member_holds_it() {
    seeds_hold(Dialect::Native);
}

#[test]
fn rlite_name_is_known_while_one_member_holds_it() {
    seeds_hold(Dialect::Rlite);
}

#[test]
fn irati_name_is_known_while_one_member_holds_it() {
    seeds_hold(Dialect::Irati);
}

const SEEDS: u64 = 40;
