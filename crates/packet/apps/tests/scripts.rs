//! Runs scripts: packets in, packets out, in simulated time.
//!
//! A script is a file in `tests/scripts` for one app:
//!
//! ```text
//! kind = "hop"                                  the app's configuration, as in a graph's file
//! --
//! # What is to be seen.
//! at 0ms
//! in  input  :1 > :2 | ip 10.0.0.1 > 10.0.0.2 ttl 2 | "x"
//! out output :2 > :1 | ip 10.0.0.1 > 10.0.0.2 ttl 1 | "x"
//! counter drop_hop_limit 0
//! ```
//!
//! At each `at`, the frames of the `in` lines wait at the app's inputs, and the network breathes a
//! few times. Then exactly the frames of the `out` lines must have come out, in this order per
//! output. `ports` lines name ports that have no other lines. `any` lines name outputs whose frames
//! are not compared, because they contain the time of day or random bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use carina_apps::impair::ImpairConfig;
use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::{self, CounterFile};
use carina_frame_engine::{Graph, Network};
use carina_graph::graph_file::read_graph;
use carina_time::Instant;

use crate::notation::frame;
use crate::probes::{Collector, Feeder, Waiting};

/// The app of a script, with a probe at each port.
struct Bench {
    network: Network,
    counters: std::path::PathBuf,
    inputs: BTreeMap<String, Waiting>,
    outputs: BTreeMap<String, Waiting>,
    /// Outputs whose frames are not compared.
    unlooked: BTreeSet<String>,
}

impl Bench {
    fn new(name: &str, config: &str, lines: &[&str]) -> Bench {
        let mut used: [BTreeSet<String>; 2] = Default::default();
        for line in lines {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["in", port, ..] | ["ports", "in", port] => used[0].insert(port.to_owned()),
                ["out", port, ..] | ["ports", "out", port] | ["any", port] => {
                    used[1].insert(port.to_owned())
                }
                _ => false,
            };
        }
        let mut text = String::from("links = [");
        let mut probes = String::new();
        for port in &used[0] {
            text += &format!("\"in-{port}.output -> app.{port}\", ");
            probes += &format!("[apps.in-{port}]\nkind = \"source\"\n");
        }
        for port in &used[1] {
            text += &format!("\"app.{port} -> out-{port}.input\", ");
            probes += &format!("[apps.out-{port}]\nkind = \"sink\"\n");
        }
        text += &format!("]\n[apps.app]\n{config}\n{probes}");
        let mut graph: Graph = read_graph(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (mut inputs, mut outputs) = (BTreeMap::new(), BTreeMap::new());
        for port in &used[0] {
            let waiting = Waiting::default();
            graph.app(&format!("in-{port}"), Feeder(Arc::clone(&waiting)));
            inputs.insert(port.clone(), waiting);
        }
        for port in &used[1] {
            let seen = Waiting::default();
            graph.app(&format!("out-{port}"), Collector(Arc::clone(&seen)));
            outputs.insert(port.clone(), seen);
        }
        let file = format!("carina-apps-{}-{name}", std::process::id());
        let counters = std::env::temp_dir().join(file);
        let pool = Pool::new(PoolConfig {
            frames: 2048,
            frame_bytes: 2048,
        });
        let file = CounterFile::create(&counters).unwrap();
        let mut network = Network::new(pool.unwrap(), file).unwrap();
        let configured = network.configure(&graph);
        configured.unwrap_or_else(|error| panic!("{name}: {error}"));
        Bench {
            network,
            counters,
            inputs,
            outputs,
            unlooked: lines
                .iter()
                .filter_map(|line| line.strip_prefix("any "))
                .map(str::to_owned)
                .collect(),
        }
    }

    fn settle(&mut self, now: Instant) {
        // A repeater never stops, so only a few breaths are taken.
        for _ in 0..3 {
            self.network.breathe(now);
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let name = format!("app/{name}");
        let all = counter_file::read(&self.counters).unwrap();
        let found = all.iter().find(|reading| reading.name == name);
        found
            .unwrap_or_else(|| panic!("no counter {name} in {all:?}"))
            .value
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.counters);
    }
}

/// Sends frames into `input` of an app with ports `north` and `south`; returns what comes out of
/// `output`.
pub(crate) fn through(config: &str, input: &str, frames: &[Vec<u8>], output: &str) -> Vec<Vec<u8>> {
    let ports = ["north", "south"];
    let lines = ports.map(|port| [format!("ports in {port}"), format!("ports out {port}")]);
    let lines: Vec<&str> = lines.iter().flatten().map(String::as_str).collect();
    let name = format!("through-{:?}", std::thread::current().id());
    let mut bench = Bench::new(&name, config, &lines);
    // An app that first asks for an address, such as `nd`, has done so after this.
    bench.settle(Instant::ZERO);
    bench.inputs[input]
        .lock()
        .unwrap()
        .extend(frames.iter().cloned());
    bench.settle(Instant::from_millis(1));
    bench.outputs[output].lock().unwrap().drain(..).collect()
}

/// Sends frames into `input` of an app, and ends the app.
pub(crate) fn into(config: &str, frames: &[Vec<u8>]) {
    let name = format!("into-{:?}", std::thread::current().id());
    let mut bench = Bench::new(&name, config, &["ports in input"]);
    bench.inputs["input"]
        .lock()
        .unwrap()
        .extend(frames.iter().cloned());
    bench.settle(Instant::ZERO);
}

/// Sends groups of frames into `input` of an app, each at its time in milliseconds; returns what
/// comes out of `output`.
pub(crate) fn over_time(config: &str, steps: &[(u64, Vec<Vec<u8>>)], output: &str) -> Vec<Vec<u8>> {
    let name = format!("over-time-{:?}", std::thread::current().id());
    let ports = ["ports in input", &format!("ports out {output}")];
    let mut bench = Bench::new(&name, config, &ports);
    for (millis, frames) in steps {
        let mut waiting = bench.inputs["input"].lock().unwrap();
        waiting.extend(frames.iter().cloned());
        drop(waiting);
        bench.settle(Instant::from_millis(*millis));
    }
    bench.outputs[output].lock().unwrap().drain(..).collect()
}

fn run(name: &str, script: &str) {
    let (config, body) = script.split_once("\n--\n").expect("a script has a line --");
    let lines: Vec<&str> = body.lines().map(str::trim).collect();
    let mut bench = Bench::new(name, config, &lines);
    let mut at = 0;
    while at < lines.len() {
        let Some(time) = lines[at].strip_prefix("at ") else {
            at += 1;
            continue;
        };
        let end = lines[at + 1..]
            .iter()
            .position(|line| line.starts_with("at "));
        let end = end.map_or(lines.len(), |end| at + 1 + end);
        step(
            &format!("{name}, at {time}"),
            &mut bench,
            time,
            &lines[at + 1..end],
        );
        at = end;
    }
}

fn step(place: &str, bench: &mut Bench, time: &str, lines: &[&str]) {
    let millis: u64 = time.strip_suffix("ms").unwrap().parse().unwrap();
    let mut expected: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    for line in lines {
        let (word, rest) = first_word(line);
        let (port, rest) = first_word(rest);
        match word {
            "in" => bench.inputs[port].lock().unwrap().push_back(frame(rest)),
            "out" => expected.entry(port).or_default().push(frame(rest)),
            _ => {}
        }
    }
    bench.settle(Instant::from_millis(millis));
    for (port, seen) in &bench.outputs {
        let seen: Vec<Vec<u8>> = seen.lock().unwrap().drain(..).collect();
        if bench.unlooked.contains(port) {
            continue;
        }
        let wanted = expected.remove(port.as_str()).unwrap_or_default();
        assert!(
            seen == wanted,
            "{place}, output {port}:\n{}",
            side_by_side(&seen, &wanted)
        );
    }
    for line in lines
        .iter()
        .filter_map(|line| line.strip_prefix("counter "))
    {
        let (name, value) = line.split_once(' ').unwrap();
        assert_eq!(
            bench.counter(name),
            value.trim().parse::<u64>().unwrap(),
            "{place}: {name}"
        );
    }
}

fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn side_by_side(seen: &[Vec<u8>], wanted: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for at in 0..seen.len().max(wanted.len()) {
        for (word, side) in [("seen", seen), ("wanted", wanted)] {
            let bytes = side.get(at).map(|bytes| {
                let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                pairs.concat()
            });
            text += &format!(
                "{word:>6} {}\n",
                bytes.unwrap_or_else(|| "no frame".to_owned())
            );
        }
    }
    text
}

#[test]
fn frame_that_comes_during_a_breath_has_its_whole_delay() {
    let ports = ["ports in input", "ports out output"];
    let config = "kind = \"impair\"\ndelay_us = 20000";
    let mut bench = Bench::new("impair-during-a-breath", config, &ports);
    // The breath began at 0 ms, but the thread was not scheduled until 15 ms.
    bench.network.set_clock(|| Instant::from_millis(15));
    let input = &bench.inputs["input"];
    input.lock().unwrap().push_back(frame(":1 > :2 | \"one\""));
    bench.network.breathe(Instant::ZERO);
    let came = |bench: &mut Bench, millis: u64| {
        bench.network.breathe(Instant::from_millis(millis));
        bench.outputs["output"].lock().unwrap().len()
    };
    assert_eq!((came(&mut bench, 34), came(&mut bench, 35)), (0, 1));
}

#[test]
fn damaged_frames_differ_in_one_bit() {
    let sent = frame(":1 > :2 | \"whole\" | pad 60");
    let ones = |frames: &[Vec<u8>]| -> Vec<u32> {
        let bits = |frame: &Vec<u8>| {
            assert_eq!(frame.len(), sent.len());
            let pairs = frame.iter().zip(&sent);
            pairs.map(|(a, b)| (a ^ b).count_ones()).sum()
        };
        frames.iter().map(bits).collect()
    };
    let steps = [(0, vec![sent.clone(); 4])];
    let all = over_time("kind = \"impair\"\ncorrupt = 1.0", &steps, "output");
    assert_eq!(ones(&all), [1, 1, 1, 1]);
    let none = over_time("kind = \"impair\"\nloss = 0.0", &steps, "output");
    assert_eq!(ones(&none), [0, 0, 0, 0]);
    let wrong = ImpairConfig {
        corrupt: 1.5,
        ..ImpairConfig::default()
    };
    let error = wrong.plan().unwrap_err().to_string();
    assert!(
        error.contains("corrupt is 1.5; must be from 0 to 1"),
        "{error}"
    );
}

#[test]
fn every_script_sees_the_frames_it_wants() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        run(&name, &std::fs::read_to_string(&path).unwrap());
        names.insert(name);
    }
    // Each kind of app needs a script of its name, or scripts whose names begin with it.
    for kind in carina_graph::graph_file::KINDS {
        let has = names.iter().any(|name| name.starts_with(kind.name));
        assert!(has, "no script for {}", kind.name);
    }
}
