//! Several workers together do what one worker does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_apps::join::JoinConfig;
use carina_apps::pcap_read::PcapReadConfig;
use carina_apps::pcap_write::PcapWriteConfig;
use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::Graph;
use carina_frame_engine::counter_file;
use carina_graph::runner::GraphRunner;
use carina_lwaftr::app::LwaftrConfig;
use carina_lwaftr::check::{Inputs, read_frames, run, write_frames};
use carina_lwaftr::config::{NextHopAddress, Queue, Rules};
use carina_lwaftr::exchange::{Exchange, Share};
use carina_lwaftr::file::Loaded;
use carina_lwaftr::monitor::Monitor;
use carina_lwaftr::spread::{Side, Spread, SpreadConfig};
use carina_wire::neighbour::{Neighbour, NeighbourKind};

use crate::fragments::{cut4, cut6};
use crate::harness::*;
use crate::neighbours::{arp, asking, octets};

/// Only bounds how long a test may hang; no assertion depends on it.
const PATIENCE: Duration = Duration::from_secs(120);
const WORKERS: usize = 3;

/// An AFTR of three workers between the files `in4`, `in6`, `out4` and `out6`.
struct Site<'a> {
    loaded: &'a Loaded,
    exchange: Arc<Exchange>,
    directory: &'a Path,
}

impl Site<'_> {
    fn graph(&self, inputs: [&str; 2]) -> Graph {
        let queue = self.loaded.config.queues().next().unwrap().clone();
        let mut graph = Graph::new();
        let (config, table) = (&self.loaded.config, &self.loaded.table);
        let (config, table) = (Arc::new(config.clone()), Arc::new(table.clone()));
        for worker in 0..WORKERS {
            let app = LwaftrConfig {
                queue: queue.clone(),
                config: Arc::clone(&config),
                table: Arc::clone(&table),
                rules: Rules::RFC,
                is_stick: false,
                monitor: Monitor::None,
                share: Some(Share {
                    worker,
                    workers: WORKERS,
                    asks: worker == 0,
                    exchange: Arc::clone(&self.exchange),
                }),
            };
            let name = format!("aftr-{worker}");
            graph.app(&name, app).place(&name, worker + 1);
        }
        let sides = [
            ("external", Side::External, inputs[0], "out4"),
            ("internal", Side::Internal, inputs[1], "out6"),
        ];
        for (name, side, input, output) in sides {
            let read = PcapReadConfig {
                file: self.directory.join(input),
                repeat: false,
                pace: false,
                ..PcapReadConfig::default()
            };
            let write = PcapWriteConfig {
                file: self.directory.join(output),
                snap: 2000,
            };
            let spread = SpreadConfig {
                side,
                queues: vec![queue.clone(); WORKERS],
            };
            let apps = ["in", "spread", "join", "out"].map(|part| format!("{part}-{name}"));
            graph
                .app(&apps[0], read)
                .app(&apps[1], spread)
                .app(&apps[2], JoinConfig {})
                .app(&apps[3], write);
            let mut links = vec![
                format!("{}.output -> {}.input", apps[0], apps[1]),
                format!("{}.output -> {}.input", apps[2], apps[3]),
            ];
            for worker in 0..WORKERS {
                links.push(format!("{}.{worker} -> aftr-{worker}.{name}", apps[1]));
                links.push(format!("aftr-{worker}.{name} -> {}.{worker}", apps[2]));
            }
            for link in &links {
                graph.link(link).unwrap();
            }
            for app in &apps {
                graph.place(app, 0);
            }
        }
        graph
    }

    fn write(&self, name: &str, frames: &[Vec<u8>]) {
        fs::write(self.directory.join(name), write_frames(frames)).unwrap();
    }

    fn left(&self, name: &str) -> Vec<Vec<u8>> {
        let written = fs::read(self.directory.join(name)).unwrap_or_default();
        let whole = read_frames(&written[..]).unwrap_or_default();
        whole.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Packets towards B4s. Excludes neighbour solicitations, which may come late on a slow
    /// machine.
    fn forwarded(&self) -> Vec<Vec<u8>> {
        let mut frames = self.left("out6");
        frames.retain(|frame| frame[..6] == NEXT_MAC);
        frames
    }
}

fn runner(directory: &Path) -> GraphRunner {
    let pool = PoolConfig {
        frames: 4096,
        frame_bytes: 4096,
    };
    GraphRunner::new(pool, Some(&directory.join("counters"))).unwrap()
}

/// Runs the graph until `is_so` returns true.
fn until(runner: &mut GraphRunner, what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        runner
            .run_for(carina_time::Duration::from_millis(20))
            .unwrap();
    }
}

/// The values of one counter, by worker.
fn counters(directory: &Path, name: &str) -> Vec<u64> {
    let readings = counter_file::read(&directory.join("counters")).unwrap();
    let of = |worker| {
        let name = format!("aftr-{worker}/{name}");
        let found = readings.iter().find(|reading| reading.name == name);
        found.map_or(0, |reading| reading.value)
    };
    (0..WORKERS).map(of).collect()
}

/// Packets of many hosts: fragments of every kind, and packets between customers.
fn traffic() -> Case {
    let mut case = Case::plain();
    let far = |host: u8| [198, 51, 100, host];
    let mut later = Vec::new();
    for host in 0..40 {
        let long = udp((far(host), 33333), (SHARED, 40000), &[host; 600]);
        let inner = udp((SHARED, 40000), (far(host), 33333), &[host; 1000]);
        let mut inner_id = inner.clone();
        edit4(&mut inner_id, |header| header.identification = host.into());
        // One half of an IPv4 packet inside IPv6 fragments, and the other half inside a whole IPv6
        // packet.
        let halves = cut4(&inner_id, &[800]);
        let cut = cut6(&tunnel(B4_HIGH, BR, &halves[0]), host.into(), &[400]);
        let whole = tunnel(B4_HIGH, BR, &halves[1]);
        let between = tunnel(
            B4_HIGH,
            BR,
            &udp((SHARED, 40000), (WHOLE, u16::from(host)), b"hello"),
        );
        let parts = cut4(&long, &[304]);
        case = case
            .with_external(frame4(&parts[1]))
            .with_internal(frame6(&cut[1]))
            .with_internal(frame6(&between));
        later.push((parts[0].clone(), cut[0].clone(), whole));
    }
    // The other halves come much later.
    for (part, cut, whole) in later {
        case = case
            .with_external(frame4(&part))
            .with_internal(frame6(&whole))
            .with_internal(frame6(&cut));
    }
    case
}

#[test]
fn three_workers_forward_what_one_does() {
    let (case, directory) = (traffic(), tempfile::tempdir().unwrap());
    let loaded = case.loaded([None, None]);
    let inputs = Inputs {
        external: case.external.clone(),
        internal: case.internal.clone(),
        is_stick: false,
    };
    let one = run(&loaded, Rules::RFC, &inputs).unwrap();
    assert_eq!((one.external.len(), one.internal.len()), (40, 80));
    let site = Site {
        loaded: &loaded,
        exchange: Exchange::new(),
        directory: directory.path(),
    };
    let bytes = |frames: &carina_lwaftr::check::Frames| {
        let frames = frames.iter().map(|(_, frame)| frame.clone());
        frames.collect::<Vec<_>>()
    };
    site.write("in4", &bytes(&case.external));
    site.write("in6", &bytes(&case.internal));
    let mut runner = runner(directory.path());
    runner.configure(&site.graph(["in4", "in6"])).unwrap();
    until(&mut runner, "120 frames", || {
        site.left("out4").len() + site.left("out6").len() >= 120
    });
    let set = |frames: Vec<Vec<u8>>| frames.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(set(site.left("out4")), set(one.external));
    assert_eq!(set(site.left("out6")), set(one.internal));
    until(&mut runner, "counters", || {
        let sum = |name| counters(directory.path(), name).iter().sum::<u64>();
        sum("in-ipv4-packets") == 40 && sum("hairpin-ipv4-packets") == 40
    });
    // More than one worker had packets.
    let busy = counters(directory.path(), "in-ipv4-packets");
    assert!(
        busy.iter().filter(|count| **count > 0).count() > 1,
        "{busy:?}"
    );
}

#[test]
fn what_one_worker_learns_all_know() {
    let directory = tempfile::tempdir().unwrap();
    let loaded = asking().loaded([None, None]);
    let site = Site {
        loaded: &loaded,
        exchange: Exchange::new(),
        directory: directory.path(),
    };
    let long = |host: u8| udp(([198, 51, 100, host], 33333), (WHOLE, 5), &[7; 1400]);
    let advertisement = Neighbour {
        kind: NeighbourKind::Advertisement {
            is_solicited: true,
            is_router: true,
            is_override: true,
        },
        source: octets("fd00::9"),
        destination: octets(OWN6),
        target: octets("fd00::9"),
        link: Some(NEXT_MAC),
    };
    let quoted = tunnel(BR_WHOLE, B4_WHOLE, &long(1));
    let too_big = icmp6(["2001:db8::99", BR_WHOLE], 2, 0, 1400, &quoted[..600]);
    site.write(
        "first4",
        &[arp(true, (NEXT_MAC, [10, 1, 1, 9]), (OWN_MAC, OWN4))],
    );
    site.write(
        "first6",
        &[frame6(&advertisement.encode()), frame6(&too_big)],
    );
    let mut runner = runner(directory.path());
    site.write("none", &[]);
    runner.configure(&site.graph(["none", "none"])).unwrap();
    let asked = |name| counters(directory.path(), name);
    until(&mut runner, "questions", || {
        asked("out-arp-request-packets")[0] > 0 && asked("out-ndp-ns-packets")[0] > 0
    });
    runner.configure(&site.graph(["first4", "first6"])).unwrap();
    until(&mut runner, "news at every worker", || {
        let all = [
            "path-mtus",
            "next-hop-ipv4-resolved",
            "next-hop-ipv6-resolved",
        ];
        all.iter()
            .all(|name| counters(directory.path(), name) == [1; WORKERS])
    });
    assert_eq!(site.forwarded().len(), 0);
    let packets: Vec<_> = (0..40).map(|host| frame4(&long(host))).collect();
    site.write("then4", &packets);
    site.write("then6", &[]);
    runner.configure(&site.graph(["then4", "then6"])).unwrap();
    until(&mut runner, "80 fragments", || site.forwarded().len() >= 80);
    let mut lengths: Vec<usize> = site
        .forwarded()
        .iter()
        .map(|frame| out6(frame).1.len())
        .collect();
    lengths.sort_unstable();
    let (short, long) = lengths.split_at(40);
    assert_eq!((short[39], long[0], long[39]), (84, 1360, 1360));
    for name in ["out-arp-request-packets", "out-ndp-ns-packets"] {
        assert_eq!(asked(name)[1..], [0; WORKERS - 1], "{name}");
    }
    let busy = counters(directory.path(), "in-ipv4-packets");
    assert!(
        busy.iter().filter(|count| **count > 0).count() > 1,
        "{busy:?}"
    );
}

/// Copies of one queue, each with one change.
fn queues(changes: &[fn(&mut Queue)]) -> Vec<Queue> {
    let loaded = Case::plain().loaded([Some(7), Some(8)]);
    let first = loaded.config.queues().next().unwrap();
    let changed = changes.iter().map(|change| {
        let mut queue = first.clone();
        change(&mut queue);
        queue
    });
    changed.collect()
}

#[test]
fn frames_go_to_the_worker_with_their_addresses() {
    let pool = Pool::new(PoolConfig {
        frames: 64,
        frame_bytes: 2048,
    })
    .unwrap();
    let queues = queues(&[
        |_| {},
        |queue| queue.external.mac.0[5] = 2,
        |queue| queue.external.ip = [10, 1, 1, 2].into(),
        |queue| (queue.external.vlan, queue.internal.vlan) = (Some(70), Some(80)),
        |queue| queue.internal.ip = "fd00::2".parse().unwrap(),
    ]);
    let spread = Spread::new(&SpreadConfig {
        side: Side::Stick,
        queues,
    });
    let worker = |frame: &[u8], tag: u16| {
        let in_bytes = pool.frame_of(&with_tag(frame, Some(tag))).unwrap();
        let mut beside = pool.frame_of(frame).unwrap();
        beside.set_vlan(Some(tag | 0xe000));
        let workers = [&in_bytes, &beside].map(|frame| spread.worker_of(frame));
        assert_eq!(workers[0], workers[1]);
        workers[0]
    };
    let packet = |host: u8| frame4(&udp(([198, 51, 100, host], 1), (WHOLE, 5), b"x"));
    let mut second = packet(1);
    second[5] = 2;
    assert_eq!(worker(&second, 7), 1);
    assert_eq!(worker(&packet(1), 70), 3);
    let all: BTreeSet<usize> = (0..100).map(|host| worker(&packet(host), 7)).collect();
    assert_eq!(all, [0, 2, 4].into(), "those with the MAC address and VLAN");
    let station = ([2, 0, 0, 0, 0, 5], [10, 1, 1, 5]);
    let asked = |ip| arp(false, station, ([0; 6], ip));
    assert_eq!(worker(&asked(OWN4), 7), 0);
    assert_eq!(worker(&asked([10, 1, 1, 2]), 7), 2);
    assert_eq!(worker(&asked([10, 1, 1, 77]), 7), 0);
    let solicitation = |target: &str| {
        let asked = Neighbour {
            kind: NeighbourKind::Solicitation,
            source: octets("fd00::5"),
            destination: octets("ff02::1:ff00:2"),
            target: octets(target),
            link: Some([2, 0, 0, 0, 0, 5]),
        };
        let mut frame = frame6(&asked.encode());
        frame[..6].copy_from_slice(&[0x33, 0x33, 0xff, 0, 0, 2]);
        frame
    };
    assert_eq!(worker(&solicitation("fd00::2"), 8), 4);
    assert_eq!(worker(&solicitation(OWN6), 80), 3);
    let ping = |to| frame4(&icmp4([HOST, to], 8, 0, 1, b"x"));
    assert_eq!(worker(&ping([10, 1, 1, 2]), 7), 2);
    // The first worker gets, and counts, frames of an unknown VLAN and truncated frames.
    assert_eq!(worker(&packet(1), 9), 0);
    for length in 0..60 {
        let cut = pool.frame_of(&solicitation(OWN6)[..length]).unwrap();
        assert!(spread.worker_of(&cut) < 5);
    }
}

#[test]
fn announcements_go_to_the_first_worker_with_the_next_hop() {
    let pool = Pool::new(PoolConfig {
        frames: 64,
        frame_bytes: 2048,
    })
    .unwrap();
    let queues = queues(&[
        |_| {},
        |queue| {
            queue.external.mac.0[5] = 3;
            queue.external.next_hop = NextHopAddress::Ip([10, 1, 1, 8].into());
            queue.internal.mac.0[5] = 3;
            queue.internal.next_hop = NextHopAddress::Ip("fd00::8".parse().unwrap());
        },
    ]);
    let spread = Spread::new(&SpreadConfig {
        side: Side::Stick,
        queues,
    });
    let worker = |frame: &[u8], tag: u16| {
        spread.worker_of(&pool.frame_of(&with_tag(frame, Some(tag))).unwrap())
    };
    let announced = |next| {
        let mut frame = arp(false, ([2, 0, 0, 0, 0, 6], next), ([0; 6], next));
        frame[..6].fill(0xff);
        frame
    };
    assert_eq!(worker(&announced([10, 1, 1, 8]), 7), 1);
    assert_eq!(worker(&announced([10, 1, 1, 7]), 7), 0);
    let unasked = |target: &str| {
        let message = Neighbour {
            kind: NeighbourKind::Advertisement {
                is_solicited: false,
                is_router: true,
                is_override: true,
            },
            source: octets(target),
            destination: octets("ff02::1"),
            target: octets(target),
            link: Some([2, 0, 0, 0, 0, 6]),
        };
        let mut frame = frame6(&message.encode());
        frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
        frame
    };
    assert_eq!(worker(&unasked("fd00::8"), 8), 1);
    assert_eq!(worker(&unasked("fd00::7"), 8), 0);
}
