//! The app in a graph: frames of a file through it, and another table while it runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_apps::pcap_read::PcapReadConfig;
use carina_apps::pcap_write::PcapWriteConfig;
use carina_apps::runner::GraphRunner;
use carina_engine::counter_file;
use carina_engine::frames::Graph;
use carina_frame::PoolConfig;
use carina_lwaftr::app::LwaftrConfig;
use carina_lwaftr::check::{read_frames, write_frames};
use carina_lwaftr::config::Rules;

use crate::harness::*;

/// Nothing is judged by it; it ends what hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The graph with the table of a case, which sends the frames of a file.
fn graph(case: &Case, directory: &Path, file: &str) -> Graph {
    let loaded = case.loaded([None, None]);
    let app = LwaftrConfig {
        queue: loaded.config.instances[0].queues[0].clone(),
        config: Arc::new(loaded.config),
        table: Arc::new(loaded.table),
        rules: Rules::RFC,
        is_stick: false,
    };
    let read = PcapReadConfig {
        file: directory.join(file),
        repeat: false,
        pace: false,
    };
    let write = PcapWriteConfig {
        file: directory.join("out"),
        snap: 2000,
    };
    let mut graph = Graph::new();
    graph.app("aftr", app).app("in", read).app("out", write);
    graph.link("in.output -> aftr.external").unwrap();
    graph.link("aftr.internal -> out.input").unwrap();
    graph
}

/// Runs until so many frames are in the file that is written.
fn frames(runner: &mut GraphRunner, directory: &Path, count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    loop {
        runner
            .run_for(carina_time::Duration::from_millis(20))
            .unwrap();
        let written = fs::read(directory.join("out")).unwrap_or_default();
        let whole = read_frames(&written).unwrap_or_default();
        if whole.len() >= count {
            return whole.into_iter().map(|(_, frame)| frame).collect();
        }
        assert!(Instant::now() < end, "{} frames", whole.len());
    }
}

#[test]
fn table_is_replaced_while_the_app_runs() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let packet = |payload| frame4(&udp((HOST, 53), (WHOLE, 5), payload));
    fs::write(at.join("one"), write_frames(&[packet(b"one")])).unwrap();
    fs::write(at.join("two"), write_frames(&[packet(b"two")])).unwrap();
    let counters = at.join("counters");
    let pool = PoolConfig {
        frames: 2048,
        frame_bytes: 4096,
    };
    let mut runner = GraphRunner::new(pool, Some(&counters)).unwrap();
    let mut case = Case::plain();
    runner.configure(&graph(&case, at, "one")).unwrap();
    let first = frames(&mut runner, at, 1);
    assert_eq!(into(&first[0], BR_WHOLE, B4_WHOLE).payload[8..], *b"one");

    case.configuration = case.configuration.replace("2001:db8::3", "2001:db8::33");
    runner.configure(&graph(&case, at, "two")).unwrap();
    let both = frames(&mut runner, at, 2);
    assert_eq!(
        into(&both[1], BR_WHOLE, "2001:db8::33").payload[8..],
        *b"two"
    );

    // The app has stayed: it counts on.
    let end = Instant::now() + PATIENCE;
    loop {
        let readings = counter_file::read(&counters).unwrap();
        let mut found = readings.iter();
        let count = found.find(|reading| reading.name == "aftr/in-ipv4-packets");
        if count.is_some_and(|count| count.value == 2) {
            break;
        }
        assert!(Instant::now() < end, "{readings:?}");
        runner
            .run_for(carina_time::Duration::from_millis(20))
            .unwrap();
    }
}
