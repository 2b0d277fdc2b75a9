//! Draws a scenario from a seed: number of members, cables, faults.

use carina_ipcp::{DifConfig, PolicySpec};
use carina_wire::FlowSpec;

use super::{Fault, SECOND, Scenario};
use crate::link::Profile;
use carina_random::Random;

impl Scenario {
    pub(super) fn draw_faults(&mut self, random: &mut Random) {
        // One member never fails, so that the DIF continues to exist.
        let anchor = random.index(self.members);
        let count = random.within(0, 2 + self.members as u64 / 4);
        for _ in 0..count {
            let start = SECOND * random.within(1, self.heal_ns / SECOND - 2) + random.below(SECOND);
            let end = start + random.within(SECOND / 10, self.heal_ns - start);
            let system = random.index(self.members);
            let edge = random.index(self.edges.len());
            let (bad, good) = match random.below(10) {
                0..4 if system != anchor => (Fault::Crash(system), Fault::Restart(system)),
                4..6 => {
                    let cut = self.draw_cut(random);
                    (Fault::Cut(cut.clone()), Fault::Mend(cut))
                }
                6..8 => (Fault::Storm(edge), Fault::Calm(edge)),
                8 if system != anchor => (Fault::Leave(system), Fault::ComeBack(system)),
                _ => (Fault::Cut(vec![edge]), Fault::Mend(vec![edge])),
            };
            self.faults.push((start, bad));
            self.faults.push((end, good));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// The edges between a random half of the members and the other half.
    fn draw_cut(&self, random: &mut Random) -> Vec<usize> {
        let half: Vec<bool> = (0..self.members).map(|_| random.chance(5_000)).collect();
        let crosses = |edge: &usize| {
            let [a, b] = self.edges[*edge];
            half[a] != half[b]
        };
        (0..self.edges.len()).filter(crosses).collect()
    }
}

/// Draws the number of members. It is mostly small, because most errors that show with many members
/// also show with few.
pub(super) fn draw_members(random: &mut Random) -> usize {
    let members = match random.below(100) {
        0..60 => random.within(2, 8),
        60..90 => random.within(9, 16),
        90..98 => random.within(17, 30),
        _ => random.within(31, 60),
    };
    members as usize
}

pub(super) fn draw_profile(random: &mut Random) -> Profile {
    let mut profile = Profile {
        delay_ns: random.within(10_000, 30_000_000),
        mtu: *random.pick(&[1_500, 1_500, 1_480, 9_000, 600, 65_535]),
        ..Profile::clean()
    };
    if random.chance(5_000) {
        profile.jitter_ns = random.below(profile.delay_ns);
    }
    if random.chance(4_000) {
        profile.rate_bps = random.within(5_000_000, 1_000_000_000);
        profile.queue_bytes = random.within(20_000, 200_000);
        profile.is_blocking = random.chance(5_000);
    }
    if random.chance(5_000) {
        profile.loss = *random.pick(&[1, 10, 100, 300]);
    }
    if random.chance(2_000) {
        profile.duplication = random.within(1, 300) as u32;
    }
    if random.chance(2_000) {
        profile.reorder = random.within(1, 500) as u32;
    }
    if random.chance(2_000) {
        profile.corruption = random.within(1, 200) as u32;
    }
    profile
}

pub(super) fn draw_config(random: &mut Random, profile: &Profile) -> DifConfig {
    let mut config = DifConfig {
        keepalive_ms: random.within(500, 2_000) as u32,
        max_pdu_lifetime_ms: random.within(500, 2_000) as u32,
        concatenation: random.chance(5_000),
        ..DifConfig::default()
    };
    if random.chance(2_000) {
        config.widths.address = 4;
        config.widths.cep = 4;
        config.widths.seq = 8;
    }
    let mut choose = |component: &str, names: &[&str]| {
        let name = random.pick(names);
        if !name.is_empty() {
            let spec = PolicySpec {
                name: (*name).to_owned(),
                ..PolicySpec::default()
            };
            config.policies.insert(component.to_owned(), spec);
        }
    };
    choose("rmt-scheduling", &["", "", "fifo", "weighted-fair"]);
    choose("rmt-queue", &["", "", "tail-drop", "red"]);
    choose("qos-selection", &["", "best-fit"]);
    if profile.corruption > 0 {
        choose("sdu-protection", &["crc32"]);
    }
    config
}

pub(super) fn draw_spec(random: &mut Random) -> FlowSpec {
    match random.below(10) {
        0..5 => FlowSpec::reliable(),
        5 => FlowSpec {
            msg_boundaries: false,
            ..FlowSpec::reliable()
        },
        6 => FlowSpec {
            in_order: false,
            ..FlowSpec::reliable()
        },
        7 => FlowSpec {
            in_order: true,
            ..FlowSpec::unreliable()
        },
        _ => FlowSpec::unreliable(),
    }
}
