//! A configuration that is read without error can be made in a network without devices.

use std::path::Path;
use std::sync::Arc;

use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, Network, PortList};
use carina_graph::graph_file::{read_app, read_graph};
use proptest::prelude::*;
use toml::Value;

use crate::probes::{Collector, Feeder, Waiting};

/// The configuration of each script, except those of apps that read or write files.
fn samples() -> Vec<toml::Table> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut files: Vec<_> = std::fs::read_dir(scripts).unwrap().flatten().collect();
    files.sort_by_key(|file| file.file_name());
    let config = |file: std::fs::DirEntry| {
        let text = std::fs::read_to_string(file.path()).unwrap();
        let (config, _) = text.split_once("--\n").unwrap();
        toml::from_str::<toml::Table>(config).unwrap()
    };
    let all = files.into_iter().map(config);
    all.filter(|table| !table.contains_key("file")).collect()
}

const NUMBERS: &[i64] = &[
    0,
    1,
    2,
    3,
    4,
    9,
    10,
    59,
    60,
    63,
    64,
    65,
    67,
    68,
    255,
    256,
    575,
    576,
    1000,
    1279,
    1280,
    1517,
    1518,
    2048,
    2049,
    4094,
    4095,
    4096,
    9000,
    0x8100,
    65_535,
    65_536,
    1_000_000,
    1_000_001,
    1 << 20,
    (1 << 20) + 1,
    1 << 24,
    4_294_967_295,
    1_000_000_000_000,
    1_000_000_000_001,
    -1,
];

const TEXTS: &[&str] = &[
    "",
    "a",
    "output",
    "10.0.0.1",
    "10.0.0.2",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "fd00::1",
    "::",
    "ff02::1",
    "02:00:00:00:00:01",
    "01:00:5e:00:00:01",
    "ff:ff:ff:ff:ff:ff",
    "00000000000000000000000000000000",
    "00000000",
    "0000000000000000",
    "00112233445566778899aabbccddeeff",
    "ffeeddccbbaa99887766554433221100",
    "01020304",
    "05060708",
    "0011223344556677",
    "ip",
    "ethernet",
    "flow",
    "turn",
    "udp",
    "tcp port",
    "ip6",
];

/// Values at and beyond the limits of what apps accept.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => proptest::sample::select(NUMBERS.to_vec()).prop_map(Value::Integer),
        6 => proptest::sample::select(TEXTS.to_vec()).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => proptest::sample::select(vec![0.0, 0.5, 1.0, 1.5, -0.1, f64::NAN])
            .prop_map(Value::Float),
    ]
}

/// Keys that the samples do not use.
const MORE_KEYS: &[&str] = &[
    "mac",
    "next_mac",
    "hop_limit",
    "resync_attempts",
    "resync_threshold",
    "rate",
    "size",
    "queue_bytes",
    "jitter_us",
    "reorder",
    "loss",
    "idle_timeout",
    "flows",
    "mtu",
    "tpid",
    "age_s",
    "addresses",
    "learn",
    "bucket_bytes",
    "key",
    "peer_session",
    "extended",
    "frames",
    "filter",
];

/// A sample in which some keys have other values.
fn table() -> impl Strategy<Value = toml::Table> {
    let sample = proptest::sample::select(samples());
    let changes = proptest::collection::vec((any::<proptest::sample::Index>(), value()), 0..4);
    (sample, changes).prop_map(|(mut table, changes)| {
        let own = table.keys().filter(|key| *key != "kind").cloned();
        let keys: Vec<String> = own
            .chain(MORE_KEYS.iter().map(|key| (*key).to_owned()))
            .collect();
        for (at, value) in changes {
            table.insert(at.get(&keys).clone(), value);
        }
        table
    })
}

/// A graph of the app, with a probe at each mandatory port.
fn graph_of(table: toml::Table) -> Option<Graph> {
    let config = read_app("app", table, &[]).ok()?;
    let (inputs, outputs) = (config.inputs(), config.outputs());
    let mut graph = Graph::new();
    graph.app_of("app", config);
    let named = |list| match list {
        PortList::Named(ports) => ports,
        PortList::Any => &[],
    };
    for port in named(inputs) {
        let (app, name) = (format!("in-{}", port.name), port.name);
        graph.app(&app, Feeder(Waiting::default()));
        graph.link(&format!("{app}.output -> app.{name}")).unwrap();
    }
    for port in named(outputs) {
        let (app, name) = (format!("out-{}", port.name), port.name);
        graph.app(&app, Collector(Arc::clone(&Waiting::default())));
        graph.link(&format!("app.{name} -> {app}.input")).unwrap();
    }
    Some(graph)
}

fn network() -> Network {
    let pool = Pool::new(PoolConfig {
        frames: 64,
        frame_bytes: 2048,
    });
    Network::new(pool.unwrap(), CounterFile::private().unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn accepted_configurations_are_made(table in table()) {
        if let Some(graph) = graph_of(table.clone()) {
            // Whether a long frame fits depends on the pool, which another test varies.
            let is_long = table.get("size").and_then(Value::as_integer) > Some(2048);
            if !is_long {
                let made = network().configure(&graph);
                prop_assert!(made.is_ok(), "{table:?}\n{}", made.unwrap_err());
            }
        }
    }

    #[test]
    fn rehearsed_graphs_are_made(table in table(), frame_bytes in 64_usize..4096) {
        if let Some(graph) = graph_of(table.clone())
            && graph.rehearse(frame_bytes).is_ok()
        {
            let pool = Pool::new(PoolConfig { frames: 64, frame_bytes }).unwrap();
            let mut network = Network::new(pool, CounterFile::private().unwrap()).unwrap();
            let made = network.configure(&graph);
            prop_assert!(made.is_ok(), "{table:?}\n{}", made.unwrap_err());
        }
    }
}

#[test]
fn every_sample_is_accepted_and_made() {
    for table in samples() {
        let graph = graph_of(table.clone()).unwrap_or_else(|| panic!("{table:?}"));
        network().configure(&graph).unwrap();
    }
}

#[test]
fn apps_that_would_send_with_the_same_key_are_refused() {
    let esp = |name: &str, receive: &str| {
        format!(
            "[apps.{name}]\nkind = \"esp\"\nspi = 256\n\
             transmit_key = \"00112233445566778899aabbccddeeff\"\ntransmit_salt = \"01020304\"\n\
             receive_key = \"{receive}\"\nreceive_salt = \"01020304\"\n"
        )
    };
    let keys = [
        "ffeeddccbbaa99887766554433221100",
        "ffeeddccbbaa99887766554433221101",
    ];
    let links = [
        "a.north -> b.north",
        "b.north -> a.north",
        "a.south -> b.south",
        "b.south -> a.south",
    ];
    let text = format!(
        "links = {links:?}\n{}{}",
        esp("a", keys[0]),
        esp("b", keys[1])
    );
    let error = read_graph(&text).unwrap_err().to_string();
    assert_eq!(
        error,
        "apps a and b have the same transmit_key and transmit_salt: their nonces would meet (RFC \
         4106 §2, §3.1); each needs a key of its own"
    );
    let text = esp("a", "00112233445566778899aabbccddeeff");
    let error = read_graph(&text).unwrap_err().to_string();
    assert!(
        error.starts_with("line 4: apps.a (esp): transmit_key and transmit_salt equal"),
        "{error}"
    );
}
