//! Tests in simulated time with guests that offer no buffers for a while.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use carina_apps::join::JoinConfig;
use carina_engine::counters::{Kind, Table};
use carina_engine::{Engine, NetworkApp, Pool as PacketPool};
use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::{self, CounterFile};
use carina_frame_engine::{Graph, Network};
use carina_ports::vhost_user::VhostUserConfig;
use carina_time::{Duration, Instant};

use crate::front_end::{FEATURES, FrontEnd, PACKED, SIZE};

/// A graph, and the guests of its cards by name.
struct Site {
    network: Rc<RefCell<Network>>,
    guests: Vec<(&'static str, FrontEnd)>,
    counters: PathBuf,
    now: Instant,
    _directory: tempfile::TempDir,
}

impl Site {
    fn new(cards: &[&'static str], links: &[&str], features: u64) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let counters = path("counters");
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let file = CounterFile::create(&counters).unwrap();
        let mut network = Network::new(pool, file).unwrap();
        let mut graph = Graph::new();
        for card in cards {
            graph.app(card, VhostUserConfig::at(path(card)));
        }
        if links.iter().any(|link| link.contains("join")) {
            graph.app("join", JoinConfig {});
        }
        for link in links {
            graph.link(link).unwrap();
        }
        network.configure(&graph).unwrap();
        let guest = |card: &&'static str| {
            let guest = FrontEnd::running(&path(card), FEATURES | features);
            (*card, guest)
        };
        Site {
            network: Rc::new(RefCell::new(network)),
            guests: cards.iter().map(guest).collect(),
            counters,
            now: Instant::ZERO,
            _directory: directory,
        }
    }

    fn guest(&mut self, name: &str) -> &mut FrontEnd {
        let found = self.guests.iter_mut().find(|(card, _)| *card == name);
        &mut found.unwrap().1
    }

    /// Breathes several times at the present moment.
    fn breathe(&mut self) {
        for _ in 0..3 {
            self.network.borrow_mut().breathe(self.now);
        }
    }

    fn at(&mut self, millis: u64) {
        self.now = Instant::ZERO + Duration::from_millis(millis);
        self.breathe();
    }

    fn counter(&self, name: &str) -> u64 {
        let all = counter_file::read(&self.counters).unwrap();
        all.iter().find(|one| one.name == name).unwrap().value
    }

    /// Lets a guest send a frame that carries `number`; returns `false` if the guest's ring is
    /// full.
    fn send(&mut self, name: &str, number: u32) -> bool {
        let guest = self.guest(name);
        while guest.rings[1].poll().unwrap().is_some() {}
        if guest.rings[1].room() == 0 {
            return false;
        }
        let mut frame = [0; 60];
        frame[..4].copy_from_slice(&number.to_ne_bytes());
        guest.sends(u64::from(number) % u64::from(SIZE), &frame);
        self.breathe();
        true
    }

    /// Lets a guest offer one buffer, and returns the number of the frame that arrives in it.
    fn receive(&mut self, name: &str) -> Option<u32> {
        self.guest(name).gives_buffer(0, 2048);
        self.breathe();
        let guest = self.guest(name);
        guest.rings[0].poll().unwrap()?;
        let number = guest.bytes(0, 16)[12..].first_chunk().copied();
        number.map(u32::from_ne_bytes)
    }
}

const WIRE: [&str; 1] = ["a.output -> b.input"];

#[test]
fn guest_without_buffers_holds_its_peer_back_without_loss() {
    for features in [0, PACKED] {
        let mut site = Site::new(&["a", "b"], &WIRE, features);
        let mut sent = 0;
        while site.send("a", sent) {
            sent += 1;
            assert!(sent < 10_000, "nothing holds the sender back");
        }
        site.at(999);
        for number in 0..sent {
            assert_eq!(site.receive("b"), Some(number));
        }
        assert!(site.send("a", sent));
        assert_eq!(site.receive("b"), Some(sent));
        for counter in ["b/drop_no_room", "a.output -> b.input/drops"] {
            site.at(2000);
            assert_eq!(site.counter(counter), 0, "{counter}");
        }
    }
}

#[test]
fn stopped_guest_loses_frames_until_it_gives_buffers_again() {
    let mut site = Site::new(&["a", "b"], &WIRE, 0);
    for number in 0..3 {
        assert!(site.send("a", number));
    }
    site.at(999);
    assert_eq!(site.counter("b/drop_no_room"), 0);
    site.at(1000);
    assert_eq!(site.counter("b/drop_no_room"), 3);
    // The sender is no longer held back.
    for number in 3..100 {
        assert!(site.send("a", number));
    }
    assert_eq!(site.counter("b/drop_no_room"), 100);
    assert_eq!(site.receive("b"), None);
    assert!(site.send("a", 100));
    assert!(site.guest("b").rings[0].poll().unwrap().is_some());
    assert_eq!(site.counter("b/drop_no_room"), 100);
}

#[test]
fn frames_of_several_ports_wait_for_a_guest_only_shortly() {
    let links = [
        "a.output -> join.a",
        "c.output -> join.c",
        "join.output -> b.input",
    ];
    let mut site = Site::new(&["a", "b", "c"], &links, 0);
    assert!(site.send("a", 0) && site.send("c", 1));
    site.at(9);
    assert_eq!(site.counter("b/drop_no_room"), 0);
    site.at(10);
    assert_eq!(site.counter("b/drop_no_room"), 2);
}

#[test]
fn worker_sleeps_until_the_guest_gives_a_buffer() {
    let mut site = Site::new(&["a", "b"], &WIRE, 0);
    let row = Table::private().unwrap().row(Kind::Engine, 0, "test");
    let mut engine = Engine::new(row, PacketPool::new(0)).unwrap();
    let app = engine.reserve();
    let network = NetworkApp::new(Rc::clone(&site.network)).unwrap();
    engine.add(app, Box::new(network)).unwrap();
    assert!(site.send("a", 7));
    let mut now = Instant::ZERO;
    while engine.awake_count() > 0 || now == Instant::ZERO {
        // The worker polls for a while before it sleeps, but much shorter than until frames are
        // dropped.
        now += Duration::from_micros(10);
        assert!(now < Instant::from_millis(90), "the worker does not sleep");
        engine.breathe(now);
        engine.rest(false).unwrap();
    }
    let guest = site.guest("b");
    guest.gives_buffer(0, 2048);
    assert!(guest.rings[0].wants_kick());
    guest.kicks[0].signal();
    engine.rest(false).unwrap();
    engine.breathe(now);
    assert!(guest.rings[0].poll().unwrap().is_some());
    assert_eq!(guest.bytes(0, 16)[12..], 7u32.to_ne_bytes());
}
