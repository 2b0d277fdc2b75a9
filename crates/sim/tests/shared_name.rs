//! A name that several members hold, in all dialects.

use carina_sim::member_factory;
use carina_sim::shared_name::SharedName;
use carina_wire::dif::Dialect;

fn seeds_hold(dialect: Dialect) {
    for seed in 0..SEEDS {
        if let Err(reason) = (SharedName { seed, dialect }).run(member_factory()) {
            panic!("seed {seed}, {}: {reason}", dialect.name());
        }
    }
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
