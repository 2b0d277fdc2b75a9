//! Tests of traces of running graphs, read by the same process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file;
use carina_wire::pcapng::{Item, Reader};

use super::*;
use crate::graph_file::read_graph;
use crate::runner::GraphRunner;

const CHAIN: &str = "links = [\"a.output -> b.input\", \"b.output -> c.input\"]\n\
                     [apps.a]\nkind = \"source\"\nrate = 10000\n\
                     [apps.b]\nkind = \"hop\"\n[apps.c]\nkind = \"sink\"\n";

/// Only bounds how long a test may hang; no assertion depends on it.
const PATIENCE: Duration = Duration::from_secs(60);

fn runner(counters: &Path, graph: &str) -> GraphRunner {
    let mut runner = GraphRunner::new(PoolConfig::default(), Some(counters)).unwrap();
    runner.configure(&read_graph(graph).unwrap()).unwrap();
    runner
}

/// Runs a graph until a thread has finished.
fn run_beside<T>(runner: &mut GraphRunner, work: JoinHandle<T>) -> T {
    let begin = Instant::now();
    while !work.is_finished() {
        assert!(begin.elapsed() < PATIENCE);
        runner
            .run_for(carina_time::Duration::from_millis(10))
            .unwrap();
    }
    work.join().unwrap()
}

/// The contents of a trace: its interfaces, the packets of each, and the missed frames.
#[derive(Debug, Default)]
struct Seen {
    names: Vec<String>,
    packets: Vec<Vec<Vec<u8>>>,
    missed: u64,
}

/// Reads a trace to its end; asks for the end when each link has this many packets.
fn read_all(mut stream: TraceStream, packets: usize) -> Seen {
    let (mut file, mut bytes, mut seen) = (Reader::new(), vec![0; 1 << 16], Seen::default());
    let begin = Instant::now();
    while let Some(read) = stream.read(&mut bytes, Duration::from_millis(50)).unwrap() {
        assert!(begin.elapsed() < PATIENCE, "{seen:?}");
        file.feed(&bytes[..read]);
        while let Some(item) = file.poll().unwrap() {
            match item {
                Item::Section => {}
                Item::Interface(interface) => {
                    seen.names.push(interface.name.clone());
                    seen.packets.push(Vec::new());
                }
                Item::Packet(packet) => {
                    assert_eq!(packet.original_bytes, 64);
                    seen.packets[packet.interface as usize].push(packet.bytes.to_vec());
                }
            }
        }
        let has_enough = seen.packets.iter().all(|of_link| of_link.len() >= packets);
        if has_enough && !seen.packets.is_empty() {
            stream.finish().unwrap();
        }
    }
    assert_eq!(file.rest(), 0, "a block is cut");
    seen.missed = file.missed();
    seen
}

fn request(links: &[&str], snap_bytes: Option<u32>) -> TraceRequest {
    TraceRequest {
        snap_bytes,
        links: links.iter().map(|link| (*link).to_owned()).collect(),
    }
}

#[test]
fn frames_of_links_are_read_from_where_they_pass() {
    let directory = tempfile::tempdir().unwrap();
    let counters = directory.path().join("chain.counters");
    for graph in [CHAIN.to_owned(), format!("{CHAIN}worker = 1\n")] {
        let mut runner = runner(&counters, &graph);
        assert!(is_served(&counters));
        let path = counters.clone();
        let seen = run_beside(
            &mut runner,
            std::thread::spawn(move || {
                let stream = TraceStream::open(&path, &request(&[], Some(20))).unwrap();
                read_all(stream, 100)
            }),
        );
        assert_eq!(seen.names, ["a.output -> b.input", "b.output -> c.input"]);
        // The hop swaps the MAC addresses, and changes nothing else in the first frames.
        let [before, after] = &seen.packets[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(before[0].len(), 20);
        assert_eq!(
            (&before[0][..6], &before[0][6..12]),
            (&after[0][6..12], &after[0][..6])
        );
    }
    assert!(!is_served(&counters), "the graph has ended");
    let error = TraceStream::open(&counters, &request(&[], None)).unwrap_err();
    assert!(matches!(error, TraceError::NotRunning(_)), "{error}");
}

#[test]
fn trace_ends_with_its_link_and_says_what_it_missed() {
    let directory = tempfile::tempdir().unwrap();
    let counters = directory.path().join("flood.counters");
    let flood = CHAIN.replace("rate = 10000\n", "");
    let mut runner = runner(&counters, &flood);
    let path = counters.clone();
    let (began, begin) = channel();
    let (go, gone) = channel::<()>();
    let reading = std::thread::spawn(move || {
        let stream = TraceStream::open(&path, &request(&["b.output"], None)).unwrap();
        began.send(()).unwrap();
        // A reader that reads nothing delays no one.
        let _ = gone.recv();
        read_all(stream, usize::MAX)
    });
    let passed = || {
        let all = counter_file::read(&counters).unwrap();
        let link = all
            .iter()
            .find(|row| row.name == "b.output -> c.input/packets");
        link.map_or(0, |link| link.value)
    };
    let start = Instant::now();
    let mut enough = u64::MAX;
    while passed() < enough {
        assert!(start.elapsed() < PATIENCE, "{} frames", passed());
        runner
            .run_for(carina_time::Duration::from_millis(10))
            .unwrap();
        if begin.try_recv().is_ok() {
            enough = passed() + 1_000_000;
        }
    }
    drop(go);
    // The link is removed, which ends its trace.
    let without = "links = [\"a.output -> b.input\"]\n[apps.a]\nkind = \"source\"\nrate = 100\n\
                   [apps.b]\nkind = \"sink\"\n";
    runner.configure(&read_graph(without).unwrap()).unwrap();
    let seen = run_beside(&mut runner, reading);
    assert_eq!(seen.names, ["b.output -> c.input"]);
    assert!(
        seen.missed > 0 && !seen.packets[0].is_empty(),
        "{} missed",
        seen.missed
    );
}

#[test]
fn what_cannot_be_traced_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let counters = directory.path().join("refusals.counters");
    let mut runner = runner(&counters, CHAIN);
    let path = counters.clone();
    let refusals = run_beside(
        &mut runner,
        std::thread::spawn(move || {
            let refusal = |links: &[&str]| {
                let refused = TraceStream::open(&path, &request(links, None)).unwrap_err();
                assert!(matches!(refused, TraceError::Refused(_)), "{refused}");
                refused.to_string()
            };
            let unknown = refusal(&["a.output", "d.output"]);
            // A request that this library would never send.
            let mut socket = UnixStream::connect(socket_of(&path)).unwrap();
            socket.write_all(b"please\n\n").unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            (unknown, answer)
        }),
    );
    let (unknown, answer) = refusals;
    assert_eq!(
        unknown,
        "the graph has no link d.output; its links are a.output -> b.input, b.output -> c.input"
    );
    assert!(
        answer.starts_with("no: \"please\": a line must be"),
        "{answer}"
    );
}

#[test]
fn readers_that_stop_do_not_keep_a_graph_from_ending() {
    let directory = tempfile::tempdir().unwrap();
    let counters = directory.path().join("stopped.counters");
    let mut runner = runner(&counters, &CHAIN.replace("rate = 10000\n", ""));
    let path = counters.clone();
    let opening = std::thread::spawn(move || {
        let open = || TraceStream::open(&path, &request(&["a.output"], Some(1)));
        let streams: Vec<TraceStream> = (0..8).map(|_| open().unwrap()).collect();
        (streams, open().unwrap_err().to_string())
    });
    let (streams, refused) = run_beside(&mut runner, opening);
    assert_eq!(
        refused,
        "8 traces are running, which is the limit; end one first"
    );
    // Long enough to fill the sockets.
    std::thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    drop(runner);
    assert!(begin.elapsed() < PATIENCE);
    drop(streams);
}
