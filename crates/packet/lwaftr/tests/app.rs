//! The app in a graph: it forwards the frames of a file, and its table is replaced while it runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_apps::pcap_read::PcapReadConfig;
use carina_apps::pcap_write::PcapWriteConfig;
use carina_apps::sink::SinkConfig;
use carina_frame::PoolConfig;
use carina_frame_engine::Graph;
use carina_frame_engine::counter_file;
use carina_graph::runner::GraphRunner;
use carina_lwaftr::app::LwaftrConfig;
use carina_lwaftr::check::{read_frames, write_frames};
use carina_lwaftr::config::Rules;
use carina_lwaftr::monitor::Monitor;
use carina_lwaftr::table::{Change, Table};
use carina_lwaftr::tables::Tables;

use crate::harness::*;

/// Only bounds how long a test may hang; no assertion depends on it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A graph with the table of a case, which sends the frames of `file` through the app.
fn graph(case: &Case, directory: &Path, file: &str) -> Graph {
    let loaded = case.loaded([None, None]);
    let app = LwaftrConfig {
        queue: loaded.config.instances[0].queues[0].clone(),
        config: Arc::new(loaded.config),
        table: Arc::new(loaded.table),
        rules: Rules::RFC,
        is_stick: false,
        monitor: Monitor::None,
        share: None,
    };
    let read = PcapReadConfig {
        file: directory.join(file),
        repeat: false,
        pace: false,
        ..PcapReadConfig::default()
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

/// Runs the graph until the output file has `count` frames.
fn frames(runner: &mut GraphRunner, directory: &Path, count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    loop {
        runner
            .run_for(carina_time::Duration::from_millis(20))
            .unwrap();
        let written = fs::read(directory.join("out")).unwrap_or_default();
        let whole = read_frames(&written[..]).unwrap_or_default();
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

    // The app was kept: its counter continues.
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

/// A graph that sends packets without end through an AFTR with this table and this monitor.
fn endless(case: &Case, directory: &Path, table: &Arc<Table>, monitor: Monitor) -> Graph {
    let loaded = case.loaded([None, None]);
    let app = LwaftrConfig {
        queue: loaded.config.instances[0].queues[0].clone(),
        config: Arc::new(loaded.config),
        table: Arc::clone(table),
        rules: Rules::RFC,
        is_stick: false,
        monitor,
        share: None,
    };
    let read = PcapReadConfig {
        file: directory.join("endless"),
        repeat: true,
        pace: false,
        ..PcapReadConfig::default()
    };
    let mut graph = Graph::new();
    graph
        .app("aftr", app)
        .app("in", read)
        .app("out", SinkConfig {});
    for link in [
        "in.output -> aftr.external",
        "aftr.internal -> out.input",
        "aftr.mirror -> out.mirror",
    ] {
        graph.link(link).unwrap();
    }
    graph
}

#[test]
fn tables_change_under_load_and_no_packet_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let packets = [
        frame4(&udp((HOST, 53), (WHOLE, 5), b"one")),
        frame4(&udp((HOST, 53), (SHARED, 40000), b"two")),
    ];
    fs::write(at.join("endless"), write_frames(&packets)).unwrap();
    let counters = at.join("counters");
    let pool = PoolConfig {
        frames: 8192,
        frame_bytes: 2048,
    };
    let mut runner = GraphRunner::new(pool, Some(&counters)).unwrap();
    let case = Case::plain();
    let table = Arc::new(case.loaded([None, None]).table);
    let mut tables = Tables::new(Arc::clone(&table), false);
    let first = table.softwires().next().unwrap();
    let arrived = |runner: &GraphRunner, to: &str| {
        let links = runner.link_counts().unwrap();
        let found = links
            .into_iter()
            .find(|(name, _)| name.to.to_string() == to);
        let (name, counts) = found.unwrap();
        assert_eq!(counts.drops, 0, "{name}");
        counts.packets
    };
    let mirrored = Monitor::Address(SHARED.into());
    for step in 0_u128..200 {
        let mut softwire = first;
        softwire.b4 = (0x2001_0db8_u128 << 96 | step).into();
        tables.change(&Change::Replace(softwire)).unwrap();
        // Every tenth time the whole table is a new one.
        let table = match step % 10 {
            0 => Arc::new((**tables.used()).clone()),
            _ => Arc::clone(tables.used()),
        };
        let monitor = if step < 100 { Monitor::None } else { mirrored };
        runner
            .configure(&endless(&case, at, &table, monitor))
            .unwrap();
        runner
            .run_for(carina_time::Duration::from_millis(2))
            .unwrap();
        if step == 99 {
            assert_eq!(arrived(&runner, "out.mirror"), 0);
        }
    }
    let end = Instant::now() + PATIENCE;
    while arrived(&runner, "out.input") < 100_000 || arrived(&runner, "out.mirror") < 1000 {
        assert!(Instant::now() < end);
        runner
            .run_for(carina_time::Duration::from_millis(20))
            .unwrap();
    }
    let out = arrived(&runner, "out.input");
    let came = arrived(&runner, "aftr.external");
    assert!(came >= out, "{came} came, {out} left");
    for reading in counter_file::read(&counters).unwrap() {
        let is_loss = reading.name.starts_with("aftr/drop-") || reading.name.contains("missed");
        assert!(!is_loss || reading.value == 0, "{reading:?}");
    }
}
