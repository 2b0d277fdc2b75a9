//! Tests of the engine, with apps made for the tests: visits, credit, copies.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use carina_engine::counters::{Kind, Table};
use carina_engine::{App, AppId, Close, Credit, Engine, LinkId, Links, Packet, Pool, record_cost};
use carina_ring::channel::{ChannelMemory, Endpoint, Side};
use carina_ring::{Lease, WakeMode};
use carina_sys::{EventFd, Interest};
use carina_time::{Duration, Instant};

fn engine() -> Engine {
    let table = Table::private().unwrap();
    Engine::new(table.row(Kind::Engine, 0, "test"), Pool::new(1 << 20)).unwrap()
}

/// Counts its visits, and sleeps when asked.
struct Sleeper {
    doorbell: EventFd,
    visits: Rc<Cell<u32>>,
    deadline: Option<Instant>,
}

impl App for Sleeper {
    fn name(&self) -> &str {
        "sleeper"
    }
    fn prepare(&mut self, _now: Instant, _links: &mut Links) {
        self.visits.set(self.visits.get() + 1);
    }
    fn pull(&mut self, _now: Instant, _links: &mut Links) -> bool {
        false
    }
    fn push(&mut self, _now: Instant, _links: &mut Links) -> bool {
        false
    }
    fn release_burst(&mut self, _now: Instant, _links: &mut Links) {}
    fn arm(&mut self, _now: Instant, _links: &mut Links) -> bool {
        true
    }
    fn disarm(&mut self) {}
    fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }
    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.doorbell.as_fd(), Interest::ReadEdge)]
    }
}

fn sleeper(engine: &mut Engine, deadline: Option<Instant>) -> (AppId, EventFd, Rc<Cell<u32>>) {
    let (doorbell, visits) = (EventFd::new().unwrap(), Rc::new(Cell::new(0)));
    let ours = doorbell.try_clone().unwrap();
    let app = Sleeper {
        doorbell,
        visits: Rc::clone(&visits),
        deadline,
    };
    let id = engine.reserve();
    engine.add(id, Box::new(app)).unwrap();
    (id, ours, visits)
}

const SECOND: Instant = Instant::from_secs(1);

#[test]
fn of_1000_sleeping_apps_only_the_one_rung_is_visited() {
    let mut engine = engine();
    let apps: Vec<_> = (0..1000).map(|_| sleeper(&mut engine, None)).collect();
    engine.breathe(SECOND);
    engine.breathe(Instant::from_secs(2));
    assert_eq!(engine.awake_count(), 0);
    assert!(apps.iter().all(|(_, _, visits)| visits.get() == 2));
    apps[500].1.signal();
    assert!(!engine.rest(false).unwrap());
    engine.breathe(Instant::from_secs(3));
    assert_eq!(engine.awake_count(), 1);
    for (n, (_, _, visits)) in apps.iter().enumerate() {
        assert_eq!(visits.get(), if n == 500 { 3 } else { 2 }, "app {n}");
    }
}

#[test]
fn a_deadline_wakes_a_sleeping_app_and_ends_the_sleep() {
    let mut engine = engine();
    let start = Instant::from_nanos(carina_sys::monotonic_ns());
    let (.., visits) = sleeper(&mut engine, Some(start + Duration::from_millis(3)));
    engine.breathe(start);
    engine.breathe(start + Duration::from_millis(1));
    assert_eq!((engine.awake_count(), visits.get()), (0, 2));
    engine.rest(false).unwrap();
    let now = Instant::from_nanos(carina_sys::monotonic_ns());
    let slept = now.since(start);
    assert!(slept >= Duration::from_millis(3), "slept {slept}");
    engine.breathe(now);
    assert_eq!(visits.get(), 3);
}

#[test]
fn outside_doorbell_is_distinguished_from_apps() {
    let mut engine = engine();
    let outside = EventFd::new().unwrap();
    engine.watch_outside(&outside).unwrap();
    outside.signal();
    assert!(engine.rest(false).unwrap());
}

#[test]
fn a_removed_app_is_gone_even_when_its_doorbell_lives_on() {
    let mut engine = engine();
    let (id, doorbell, visits) = sleeper(&mut engine, None);
    engine.breathe(SECOND);
    engine.links().finish(id);
    engine.breathe(Instant::from_secs(2));
    assert_eq!(engine.take_removed(), [id]);
    let (other, _other_doorbell, other_visits) = sleeper(&mut engine, Some(Instant::from_secs(3)));
    assert_ne!(other, id, "a place may be used again, an id not");
    engine.breathe(Instant::from_secs(3));
    doorbell.signal();
    engine.wake(id);
    engine.breathe(Instant::from_secs(4));
    assert_eq!((visits.get(), other_visits.get()), (2, 2));
}

/// Reads a ring onto a link, as far as the link accepts packets.
struct Source {
    end: Endpoint,
    output: LinkId,
    held: Option<Lease>,
}

impl App for Source {
    fn name(&self) -> &str {
        "source"
    }
    fn prepare(&mut self, _now: Instant, _links: &mut Links) {}
    fn pull(&mut self, _now: Instant, links: &mut Links) -> bool {
        let mut moved = false;
        while let Some(lease) = self.held.take().or_else(|| self.end.rx.next().unwrap()) {
            if !links.may_push(self.output, lease.len()) {
                self.held = Some(lease);
                break;
            }
            assert!(
                links
                    .push(self.output, Packet::from_lease(lease, false))
                    .is_ok()
            );
            moved = true;
        }
        moved
    }
    fn push(&mut self, _now: Instant, _links: &mut Links) -> bool {
        false
    }
    fn release_burst(&mut self, _now: Instant, _links: &mut Links) {
        if self.held.is_none() {
            self.end.release();
        }
    }
    fn arm(&mut self, _now: Instant, _links: &mut Links) -> bool {
        self.held.is_some() || self.end.rx.arm()
    }
    fn disarm(&mut self) {
        self.end.rx.disarm();
    }
    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.end.my_rx_doorbell.as_fd(), Interest::ReadEdge)]
    }
}

/// Takes as many packets as the test allows.
struct Sink {
    id: AppId,
    doorbell: EventFd,
    allowed: Rc<Cell<usize>>,
    taken: Rc<RefCell<Vec<Vec<u8>>>>,
    room: Option<u64>,
    consumed: u64,
    end: Rc<RefCell<Option<Close>>>,
}

impl App for Sink {
    fn name(&self) -> &str {
        "sink"
    }
    fn prepare(&mut self, _now: Instant, links: &mut Links) {
        if let Some(room) = self.room {
            links.set_room(self.id, room);
        }
    }
    fn pull(&mut self, _now: Instant, _links: &mut Links) -> bool {
        false
    }
    fn push(&mut self, _now: Instant, links: &mut Links) -> bool {
        while let Some(link) = links.next_ready(self.id) {
            while self.allowed.get() > 0 {
                let Some(packet) = links.pop(link) else { break };
                self.allowed.set(self.allowed.get() - 1);
                self.consumed += record_cost(packet.len());
                let mut bytes = Vec::new();
                packet.append_to(&mut bytes);
                self.taken.borrow_mut().push(bytes);
            }
            links.report(link, self.consumed);
            if links.queued(link) > 0 {
                links.leave(link);
                links.retry(link);
            } else if let Some(close) = links.closed(link) {
                *self.end.borrow_mut() = Some(close.clone());
            }
        }
        true
    }
    fn release_burst(&mut self, _now: Instant, _links: &mut Links) {}
    fn arm(&mut self, _now: Instant, _links: &mut Links) -> bool {
        true
    }
    fn disarm(&mut self) {}
    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.doorbell.as_fd(), Interest::ReadEdge)]
    }
}

struct Line {
    engine: Engine,
    app: Endpoint,
    link: LinkId,
    allowed: Rc<Cell<usize>>,
    taken: Rc<RefCell<Vec<Vec<u8>>>>,
    end: Rc<RefCell<Option<Close>>>,
    now: Instant,
}

impl Line {
    fn new(credit: Credit, room: Option<u64>) -> Line {
        let mut engine = engine();
        let memory = ChannelMemory::create(4096).unwrap();
        let (from, to) = (engine.reserve(), engine.reserve());
        let link = engine.connect(from, to, credit, 1000);
        let end = memory.endpoint(Side::A, WakeMode::Fence).unwrap();
        engine
            .add(
                from,
                Box::new(Source {
                    end,
                    output: link,
                    held: None,
                }),
            )
            .unwrap();
        let (allowed, taken) = (Rc::new(Cell::new(0)), Rc::default());
        let end = Rc::default();
        let sink = Sink {
            id: to,
            doorbell: EventFd::new().unwrap(),
            allowed: Rc::clone(&allowed),
            taken: Rc::clone(&taken),
            room,
            consumed: 0,
            end: Rc::clone(&end),
        };
        engine.add(to, Box::new(sink)).unwrap();
        let app = memory.endpoint(Side::B, WakeMode::Fence).unwrap();
        Line {
            engine,
            app,
            link,
            allowed,
            taken,
            end,
            now: SECOND,
        }
    }

    fn send(&mut self, byte: u8) {
        self.app.tx.push(&[&[byte; 92]], false).unwrap();
        self.app.publish();
    }

    fn breathe(&mut self, times: u32) {
        for _ in 0..times {
            self.now += Duration::from_micros(1);
            self.engine.breathe(self.now);
        }
    }

    fn taken(&self) -> Vec<u8> {
        let taken = self.taken.borrow();
        assert!(
            taken.iter().all(|sdu| *sdu == [sdu[0]; 92]),
            "contents changed under way"
        );
        taken.iter().map(|sdu| sdu[0]).collect()
    }
}

#[test]
fn packets_left_by_a_sink_survive_the_release_of_their_ring() {
    let mut line = Line::new(Credit::Unlimited, None);
    for byte in 0..20 {
        line.send(byte);
    }
    line.breathe(2);
    assert!(line.taken().is_empty() && line.engine.pool().bytes_out() > 0);
    // The ring is overwritten completely, so packets that were left must no longer be in it.
    for byte in 100..130 {
        line.send(byte);
    }
    line.allowed.set(1000);
    line.breathe(3);
    assert_eq!(line.taken(), (0..20).chain(100..130).collect::<Vec<u8>>());
    assert_eq!(line.engine.pool().bytes_out(), 0);
}

#[test]
fn a_window_bounds_what_is_under_way_and_reports_open_it_again() {
    let mut line = Line::new(Credit::Window(3 * record_cost(92)), None);
    for byte in 0..10 {
        line.send(byte);
    }
    line.breathe(3);
    assert_eq!(line.engine.links().queued(line.link), 3);
    line.allowed.set(2);
    line.breathe(4);
    assert_eq!(line.taken(), [0, 1]);
    assert_eq!(line.engine.links().queued(line.link), 3);
    line.allowed.set(1000);
    line.breathe(10);
    assert_eq!(line.taken(), (0..10).collect::<Vec<u8>>());
}

#[test]
fn stated_credit_and_room_both_bound_a_source() {
    let mut line = Line::new(Credit::Stated, Some(2 * (record_cost(92) + 16)));
    for byte in 0..10 {
        line.send(byte);
    }
    line.allowed.set(1000);
    line.breathe(3);
    assert!(line.taken().is_empty(), "no credit was stated");
    let link = line.link;
    line.engine
        .links()
        .set_credit(link, 5 * record_cost(92), 1000);
    line.breathe(1);
    assert_eq!(line.taken().len(), 2, "room for two per breath");
    line.breathe(10);
    assert_eq!(line.taken().len(), 5, "credit for five");
    line.engine.links().set_credit(link, u64::MAX, 1000);
    line.breathe(10);
    assert_eq!(line.taken(), (0..10).collect::<Vec<u8>>());
}

#[test]
fn a_closed_link_delivers_what_is_queued_and_takes_no_more() {
    let mut line = Line::new(Credit::Unlimited, None);
    line.send(1);
    line.breathe(1);
    let link = line.link;
    line.engine
        .links()
        .close(link, Close::Graceful("first".into()));
    line.engine
        .links()
        .close(link, Close::Failed("second".into()));
    assert!(!line.engine.links().may_push(link, 1));
    line.breathe(2);
    assert_eq!(*line.end.borrow(), None);
    line.allowed.set(1);
    line.breathe(2);
    assert_eq!(line.taken(), [1]);
    assert_eq!(*line.end.borrow(), Some(Close::Graceful("first".into())));
}
