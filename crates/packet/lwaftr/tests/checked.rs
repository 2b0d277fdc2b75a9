//! A configuration that `check` accepts can also be run in a graph.

use std::sync::Arc;

use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, Network};
use carina_lwaftr::app::LwaftrConfig;
use carina_lwaftr::check::{CheckError, check};
use carina_lwaftr::config::Rules;
use carina_lwaftr::file::{Loaded, read};
use carina_lwaftr::monitor::Monitor;
use proptest::prelude::*;

use crate::harness::configuration;

/// Words that replace words of the configuration.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "6",
    "16",
    "17",
    "67",
    "68",
    "1279",
    "1280",
    "1500",
    "4094",
    "4095",
    "65535",
    "65536",
    "4294967295",
    "true",
    "false",
    "\"\"",
    "\"ip\"",
    "\"ip and\"",
    "\"tcp port\"",
    "10.1.1.1",
    "0.0.0.0",
    "224.0.0.1",
    "fd00::1",
    "::",
    "ff02::1",
    "02:00:00:00:00:01",
    "01:00:5e:00:00:01",
    "mac",
    "ip",
    "queue",
    "mtu",
    "vlan-tag",
    "next-hop",
    "ingress-filter",
    "{",
    "}",
    ";",
];

/// A configuration in which some words are replaced, or one is missing.
fn text() -> impl Strategy<Value = String> {
    let whole = configuration(
        "ingress-filter \"ip\"; error-rate-limiting { packets 10; period 2; } \
         reassembly { max-packets 100; max-fragments-per-packet 20; }",
        "flow-label 5; hairpinning true; egress-filter \"ip6\"; generate-icmp-errors true;",
    );
    let whole = whole.replace("VLAN4", "vlan-tag 5;").replace("VLAN6", "");
    let index = any::<proptest::sample::Index>;
    let changes =
        proptest::collection::vec((index(), proptest::option::weighted(0.9, index())), 0..3);
    changes.prop_map(move |changes| {
        let mut words: Vec<&str> = whole.split_inclusive([' ', ';']).collect();
        for (place, word) in changes {
            let at = place.index(words.len());
            match word {
                Some(word) => words[at] = word.get::<&str>(WORDS),
                None => drop(words.remove(at)),
            }
        }
        let spaced: Vec<String> = words.iter().map(|word| format!("{word} ")).collect();
        spaced.concat()
    })
}

fn made(loaded: &Loaded, rules: Rules) -> Result<(), String> {
    let (config, table) = (
        Arc::new(loaded.config.clone()),
        Arc::new(loaded.table.clone()),
    );
    for queue in loaded.config.queues() {
        let app = LwaftrConfig {
            config: Arc::clone(&config),
            table: Arc::clone(&table),
            queue: queue.clone(),
            rules,
            is_stick: false,
            monitor: Monitor::None,
            share: None,
        };
        let mut graph = Graph::new();
        graph.app("aftr", app);
        let pool = PoolConfig {
            frames: 64,
            frame_bytes: 2048,
        };
        let pool = Pool::new(pool).map_err(|error| error.to_string())?;
        let counters = CounterFile::private().map_err(|error| error.to_string())?;
        let network = Network::new(pool, counters);
        let mut network = network.map_err(|error| error.to_string())?;
        network
            .configure(&graph)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn accepted_configurations_run(text in text(), is_snabb in any::<bool>()) {
        let rules = if is_snabb { Rules::SNABB } else { Rules::RFC };
        let loaded = read(&text, rules.reserves_two_to_the_bits).ok();
        if let Some(loaded) = loaded.filter(|loaded| check(loaded, rules).is_ok()) {
            let made = made(&loaded, rules);
            prop_assert!(made.is_ok(), "{text}\n{}", made.unwrap_err());
        }
    }
}

#[test]
fn configuration_without_a_queue_is_refused() {
    let whole = configuration("", "")
        .replace("VLAN4", "")
        .replace("VLAN6", "");
    let loaded = read(&whole, false).unwrap();
    check(&loaded, Rules::RFC).unwrap();
    let text = include_str!("files/ietf.conf");
    let loaded = read(text, false).unwrap();
    let refused = check(&loaded, Rules::RFC).unwrap_err();
    assert!(matches!(refused, CheckError::NoQueue), "{refused}");
}
