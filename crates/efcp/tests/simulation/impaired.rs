//! Goodput through a path that loses, reorders and duplicates, against the response function of the
//! policy.

use carina_efcp::{ConnectionConfig, congestion};

use crate::channel::{MS, Rare, S, US, Weather, World};

fn config(policy: &str) -> ConnectionConfig {
    ConnectionConfig {
        congestion: congestion::by_name(policy, &Default::default()).expect("a policy"),
        ..ConnectionConfig::default()
    }
}

fn run(policy: &str, seed: u64, rare: Rare, seconds: u64) -> World {
    let weather = Weather { delay_ns: 10 * MS, ..Weather::default() };
    let mut world = World::new(seed, weather, || config(policy));
    world.rare = rare;
    world.pdu_ns = 12 * US;
    let mut next = 0;
    for _ in 0..seconds {
        next = world.write(0, next, u64::MAX, S);
    }
    let got = world.numbers(1);
    assert!(got.iter().enumerate().all(|(index, n)| index as u64 == *n));
    world
}

#[test]
fn show() {
    for policy in ["aimd", "cubic"] {
        for (name, rare) in [
            ("loss", Rare { lost: 100, ..Rare::default() }),
            ("loss+dup", Rare { lost: 100, repeated: 50, ..Rare::default() }),
            ("loss+reorder", Rare { lost: 100, overtaking: 50, ..Rare::default() }),
            ("all", Rare { lost: 100, overtaking: 50, repeated: 50 }),
            ("reorder", Rare { overtaking: 50, ..Rare::default() }),
        ] {
            let mut line = String::new();
            for seed in 1..=4 {
                let world = run(policy, seed, rare, if name == "reorder" { 10 } else { 60 });
                let c = world.ends[0].conn.counters();
                let got = world.ends[1].delivered.len() as f64 / if name == "reorder" { 10.0 } else { 60.0 };
                line += &format!(" {:.2}w", got * 0.02);
                if seed == 1 {
                    line += &format!(
                        "[lost {} resent {} late {} rto {} probes {} rxdup {}]",
                        c.lost, c.retransmitted, c.spurious, c.timeouts, c.probes,
                        world.ends[1].conn.counters().discarded(carina_efcp::Discard::Duplicate)
                    );
                }
            }
            println!("{policy:6} {name:13}{line}");
        }
    }
}
