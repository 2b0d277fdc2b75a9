//! Tests of DIFs stacked over DIFs, with the same IPCP at every level.

use carina_sim::layout::stack;
use carina_sim::session::{Ending, FlowRequest, Reader};
use carina_sim::stream::Lengths;
use carina_sim::{Profile, World, member_factory};
use carina_wire::FlowSpec;

const SECOND: u64 = 1_000_000_000;

fn carries(depth: usize, systems: usize, profile: Profile, seed: u64) {
    let world = World::new(seed, member_factory());
    let (mut world, levels) = stack(world, depth, systems, profile);
    let top = &levels[depth - 1];
    let (first, last) = (top[0], top[systems - 1]);
    world.add_app(last, "server");
    let patience = world.now() + (20 + 15 * depth as u64) * SECOND;
    let joined = world.run_while(patience, SECOND / 4, |world| !world.is_joined());
    let told = format!(
        "depth {depth}, seed {seed}: {:?}\n{}",
        world.failures(),
        world.describe()
    );
    assert!(joined, "not joined; {told}");
    world.run_for(10 * SECOND);
    for spec in [FlowSpec::reliable(), FlowSpec::unreliable()] {
        let called = world.call(FlowRequest {
            from: first,
            to: "server".into(),
            spec,
            sdus: [40, 40],
            lengths: Lengths::Mixed(50_000),
            pause_ns: 1_000_000,
            readers: [Reader::eager(); 2],
            ending: Ending::WhenDone,
            is_refused: false,
        });
        assert!(called.is_some(), "no call; {told}");
    }
    world.run_for(60 * SECOND);
    let told = format!(
        "depth {depth}, seed {seed}: {:?}\n{}",
        world.failures(),
        world.describe()
    );
    assert!(world.failures().is_empty(), "{told}");
    assert_eq!(world.probe_failed(0), None, "{told}");
    world.check_sessions();
    for level in 0..depth {
        world.check_dif(&format!("level{level}"));
    }
    world.close_all();
    world.run_for(60 * SECOND);
    world.check_leaks();
    assert!(
        world.failures().is_empty(),
        "depth {depth}, seed {seed}: {:?}",
        world.failures()
    );
}

#[test]
fn stacks_of_depth_1_to_8_carry_sdus() {
    for depth in 1..=8 {
        carries(depth, 3, Profile::clean(), depth as u64);
    }
}

#[test]
fn stacks_over_cables_that_lose_carry_sdus() {
    let profile = Profile {
        loss: 100,
        reorder: 50,
        jitter_ns: 500_000,
        ..Profile::clean()
    };
    for depth in 1..=4 {
        carries(depth, 3, profile, 100 + depth as u64);
    }
}
