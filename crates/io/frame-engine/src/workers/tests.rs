//! Tests of graphs on several threads: order, difference, refusals, sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use carina_frame::Pool;

use super::*;
use crate::app::{AppConfig, AppContext, AppError, FrameApp, PortList};
use crate::ports::Ports;

/// Sends frames numbered from 0, up to the total number that is allowed.
#[derive(Clone, Debug)]
struct Numbers(Arc<AtomicU64>);

struct NumbersApp {
    allowed: Arc<AtomicU64>,
    next: u64,
    pool: Pool,
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Numbers) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AppConfig for Numbers {
    const KIND: &'static str = "numbers";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    type App = NumbersApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<NumbersApp, AppError> {
        Ok(NumbersApp {
            allowed: Arc::clone(&self.0),
            next: 0,
            pool: context.pool().clone(),
        })
    }
}

impl FrameApp for NumbersApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let left = self.allowed.load(Ordering::Relaxed) - self.next;
        let (next, pool) = (&mut self.next, &self.pool);
        ports.fill(0, left.min(100) as usize, || {
            let frame = pool.frame_of(&next.to_le_bytes())?;
            *next += 1;
            Some(frame)
        });
    }

    fn next_deadline(&self) -> Option<carina_time::Instant> {
        // Checks the allowed number every few milliseconds.
        let now = carina_sys::monotonic_ns();
        Some(carina_time::Instant::from_nanos(now + 2_000_000))
    }
}

/// Forwards frames, and checks that no number is missing.
#[derive(Clone, Debug)]
struct InOrder {
    seen: Arc<AtomicU64>,
    /// A different value makes it a different app.
    kind: u8,
}

struct InOrderApp(Arc<AtomicU64>);

impl PartialEq for InOrder {
    fn eq(&self, other: &InOrder) -> bool {
        Arc::ptr_eq(&self.seen, &other.seen) && self.kind == other.kind
    }
}

impl AppConfig for InOrder {
    const KIND: &'static str = "in-order";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Named(&[crate::Port::optional("output")]);
    type App = InOrderApp;

    fn build(&self, _: &mut AppContext<'_>) -> Result<InOrderApp, AppError> {
        match self.kind {
            99 => Err("99 is refused".into()),
            _ => Ok(InOrderApp(Arc::clone(&self.seen))),
        }
    }
}

impl FrameApp for InOrderApp {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let mut next = self.0.load(Ordering::Relaxed);
        ports.forward(0, 0, |frame| {
            assert_eq!(frame.bytes(), next.to_le_bytes());
            next += 1;
            true
        });
        self.0.store(next, Ordering::Relaxed);
    }
}

/// A source, a chain of apps behind it, and the number of frames that each app has seen.
struct Chain {
    workers: Workers,
    graph: Graph,
    allowed: Arc<AtomicU64>,
    seen: Vec<Arc<AtomicU64>>,
}

impl Chain {
    /// The source runs on the first of these workers, and one app on each of the others.
    fn new(places: &[usize]) -> Chain {
        let pool = PoolConfig {
            frames: 8192,
            frame_bytes: 64,
        };
        let mut chain = Chain {
            workers: Workers::new(pool, CounterFile::private().unwrap()),
            graph: Graph::new(),
            allowed: Arc::default(),
            seen: Vec::new(),
        };
        let allowed = Arc::clone(&chain.allowed);
        chain
            .graph
            .app("a0", Numbers(allowed))
            .place("a0", places[0]);
        for (at, place) in places.iter().enumerate().skip(1) {
            chain.seen.push(Arc::default());
            chain.app(at, *place, 0);
            let link = format!("a{}.output -> a{at}.input", at - 1);
            chain.graph.link(&link).unwrap();
        }
        chain.configure();
        chain
    }

    fn app(&mut self, at: usize, place: usize, kind: u8) {
        let seen = Arc::clone(&self.seen[at - 1]);
        let name = format!("a{at}");
        self.graph
            .app(&name, InOrder { seen, kind })
            .place(&name, place);
    }

    fn configure(&mut self) -> Difference {
        self.workers.configure(&self.graph).unwrap()
    }

    fn seen(&self) -> Vec<u64> {
        let seen = self.seen.iter();
        seen.map(|seen| seen.load(Ordering::Relaxed)).collect()
    }

    /// Allows frames, no more than a link holds, and waits until they have reached the end.
    fn send(&self, count: u64) {
        self.allowed.fetch_add(count, Ordering::Relaxed);
        self.wait();
    }

    fn wait(&self) {
        let all = self.allowed.load(Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.seen().iter().any(|seen| *seen < all) {
            assert!(Instant::now() < deadline, "{:?} of {all}", self.seen());
            assert_eq!(self.workers.ended(), None);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn counts(&self) -> Vec<(u64, u64)> {
        let counts = self.workers.link_counts().unwrap();
        let counts = counts.iter();
        counts.map(|(_, link)| (link.packets, link.drops)).collect()
    }
}

#[test]
fn frames_cross_workers_in_order_and_none_is_lost() {
    let chain = Chain::new(&[0, 1, 2, 0]);
    for _ in 0..100 {
        chain.send(1000);
    }
    assert_eq!(chain.counts(), [(100_000, 0); 3]);
}

#[test]
fn link_between_workers_is_traced_where_it_begins() {
    let chain = Chain::new(&[0, 1]);
    let link = chain.graph.links().next().unwrap();
    let (tap, reader) = Tap::new(8);
    assert!(chain.workers.trace(link, tap).unwrap());
    chain.send(500);
    let batch = reader.take();
    let numbers = batch.iter().map(|tapped| tapped.bytes.to_vec());
    assert!(numbers.eq((0..500_u64).map(|number| number.to_le_bytes().to_vec())));
    let other = "a1.output -> a0.input".parse().unwrap();
    assert!(!chain.workers.trace(&other, Tap::new(8).0).unwrap());
}

#[test]
fn single_frames_wake_workers_that_sleep() {
    let chain = Chain::new(&[0, 1, 0, 1]);
    for _ in 0..20 {
        chain.send(1);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(chain.seen(), [20, 20, 20]);
    let busy = |chain: &Chain| -> u64 {
        let reports = chain.workers.reports().unwrap();
        reports[1..].iter().map(|report| report.cpu_ns).sum()
    };
    // The source checks every few milliseconds; its neighbour has no reason to wake up.
    let before = busy(&chain);
    std::thread::sleep(Duration::from_millis(500));
    let spent = busy(&chain) - before;
    assert!(
        spent < 20_000_000,
        "{spent} ns of CPU time in half a second"
    );
}

#[test]
fn changes_under_traffic_lose_no_frame_of_what_stays() {
    let mut chain = Chain::new(&[0, 1, 1, 0]);
    for kind in 1..20 {
        chain.allowed.fetch_add(1000, Ordering::Relaxed);
        // The app in the middle is replaced. Each app checks that no number is missing.
        chain.app(2, 1, kind);
        assert_eq!(chain.configure().replaced, ["a2"]);
        chain.wait();
    }
    assert_eq!(chain.counts(), [(19_000, 0); 3]);
}

#[test]
fn refusal_of_one_worker_changes_nothing_on_any() {
    let mut chain = Chain::new(&[0, 1, 2]);
    chain.send(1000);
    let before = chain.graph.clone();
    chain.app(1, 1, 7);
    chain.app(2, 3, 99);
    let error = chain.workers.configure(&chain.graph).unwrap_err();
    assert_eq!(error.to_string(), "app a2 (in-order): 99 is refused");
    assert_eq!(chain.workers.reports().unwrap().len(), 3);
    chain.graph = before;
    assert!(chain.configure().is_empty());
    chain.send(1000);
}

#[test]
fn app_that_changes_its_worker_is_recreated_there() {
    let mut chain = Chain::new(&[0, 0]);
    chain.send(500);
    chain.graph.place("a1", 1);
    let steps = chain.configure();
    assert_eq!(
        (&steps.replaced[..], steps.linked.len()),
        (&["a1".to_owned()][..], 0)
    );
    assert_eq!(chain.workers.reports().unwrap()[1].apps, ["a1"]);
    chain.send(500);
    // The app moves back, and the second worker ends.
    chain.graph.place("a1", 0);
    chain.configure();
    chain.send(500);
    assert_eq!(chain.workers.reports().unwrap().len(), 1);
    assert_eq!(chain.counts(), [(1500, 0)]);
}

#[test]
fn wrong_workers_and_processors_are_refused() {
    let mut chain = Chain::new(&[0, 1]);
    let mut refusal = |change: &dyn Fn(&mut Graph)| {
        let mut graph = chain.graph.clone();
        change(&mut graph);
        chain.workers.configure(&graph).unwrap_err().to_string()
    };
    let error = refusal(&|graph| {
        graph.workers(1);
    });
    assert_eq!(
        error,
        "app a1: there is no worker 1; workers are numbered from 0 to 0"
    );
    let error = refusal(&|graph| {
        graph.cpus(&[0, 0]);
    });
    assert_eq!(
        error,
        "processors [0, 0] for 2 workers: each worker must have a processor of its own"
    );
    let error = refusal(&|graph| {
        graph.workers(65);
    });
    assert_eq!(error, "65 workers: must be 1 to 64");
    let error = refusal(&|graph| {
        graph.cpus(&[0, 1023]);
    });
    assert!(error.starts_with("worker 1: processor 1023: "), "{error}");
    // The previous graph continues.
    chain.send(1000);
}

/// Never rests, and counts its visits.
#[derive(Clone, Debug)]
struct Busy(Arc<AtomicU64>);

struct BusyApp(Arc<AtomicU64>);

impl PartialEq for Busy {
    fn eq(&self, other: &Busy) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AppConfig for Busy {
    const KIND: &'static str = "busy";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::NO_PORT;
    type App = BusyApp;

    fn build(&self, _: &mut AppContext<'_>) -> Result<BusyApp, AppError> {
        Ok(BusyApp(Arc::clone(&self.0)))
    }
}

impl FrameApp for BusyApp {
    fn pull(&mut self, _: &mut Ports<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn arm(&mut self) -> bool {
        false
    }
}

/// Waits until the app beside it was visited often. Returns false if it is no longer visited.
fn others_go_on(visits: &AtomicU64) -> bool {
    let (begin, end) = (
        visits.load(Ordering::Relaxed),
        Instant::now() + Duration::from_secs(20),
    );
    while visits.load(Ordering::Relaxed) < begin + 1000 {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Takes long to be opened and to be dropped. During both, the app beside it must be visited often.
#[derive(Clone, Debug)]
struct Slow {
    visits: Arc<AtomicU64>,
    /// Number of apps that were dropped while others continued.
    dropped: Arc<AtomicU64>,
    kind: u8,
}

struct SlowApp(Slow);

impl PartialEq for Slow {
    fn eq(&self, other: &Slow) -> bool {
        self.kind == other.kind
    }
}

impl AppConfig for Slow {
    const KIND: &'static str = "slow";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::NO_PORT;
    const OPENS: bool = true;
    type App = SlowApp;

    fn open(&self, context: &mut AppContext<'_>) -> Option<crate::Opened> {
        crate::made(self, context)
    }

    fn build(&self, _: &mut AppContext<'_>) -> Result<SlowApp, AppError> {
        match (others_go_on(&self.visits), self.kind) {
            (false, _) => Err("the worker stands still".into()),
            (true, 99) => Err("99 is refused".into()),
            _ => Ok(SlowApp(self.clone())),
        }
    }
}

impl FrameApp for SlowApp {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn std::any::Any + Send>> {
        Some(self)
    }
}

impl Drop for SlowApp {
    fn drop(&mut self) {
        let goes_on = u64::from(others_go_on(&self.0.visits));
        self.0.dropped.fetch_add(goes_on, Ordering::Relaxed);
    }
}

#[test]
fn apps_are_made_and_dropped_while_their_worker_goes_on() {
    let (visits, dropped) = (Arc::default(), Arc::<AtomicU64>::default());
    let slow = |kind| Slow {
        visits: Arc::clone(&visits),
        dropped: Arc::clone(&dropped),
        kind,
    };
    let pool = PoolConfig {
        frames: 64,
        frame_bytes: 64,
    };
    let mut workers = Workers::new(pool, CounterFile::private().unwrap());
    let mut graph = Graph::new();
    graph.app("busy", Busy(Arc::clone(&visits)));
    workers.configure(&graph).unwrap();
    // A single app, several at once, and one that replaces another.
    graph.app("a", slow(1));
    workers.configure(&graph).unwrap();
    graph.app("b", slow(1)).app("c", slow(1)).app("a", slow(2));
    workers.configure(&graph).unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    // After a refusal, what was built in vain is dropped on the thread that built it.
    let before = graph.clone();
    graph.app("a", slow(99));
    let error = workers.configure(&graph).unwrap_err().to_string();
    assert_eq!(error, "app a (slow): 99 is refused");
    assert!(workers.configure(&before).unwrap().is_empty());
    let mut alone = Graph::new();
    alone.app("busy", Busy(Arc::clone(&visits)));
    workers.configure(&alone).unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 4);
    assert!(others_go_on(&visits));
}

/// When it is dropped, waits until the other apps of its kind are being dropped, too.
#[derive(Clone, Debug)]
struct Meeting {
    present: Arc<(Mutex<usize>, Condvar)>,
    /// Number of apps that did not wait in vain.
    met: Arc<AtomicU64>,
    number: usize,
}

struct MeetingApp(Meeting);

impl PartialEq for Meeting {
    fn eq(&self, other: &Meeting) -> bool {
        self.number == other.number
    }
}

impl AppConfig for Meeting {
    const KIND: &'static str = "meeting";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::NO_PORT;
    type App = MeetingApp;

    fn build(&self, _: &mut AppContext<'_>) -> Result<MeetingApp, AppError> {
        Ok(MeetingApp(self.clone()))
    }
}

impl FrameApp for MeetingApp {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn std::any::Any + Send>> {
        Some(self)
    }
}

impl Drop for MeetingApp {
    fn drop(&mut self) {
        let (count, changed) = &*self.0.present;
        let mut present = count.lock().unwrap();
        *present += 1;
        changed.notify_all();
        let limit = Duration::from_secs(20);
        let waited = changed.wait_timeout_while(present, limit, |count| *count < APPS);
        let met = !waited.unwrap().1.timed_out();
        self.0.met.fetch_add(u64::from(met), Ordering::Relaxed);
    }
}

const APPS: usize = 12;

#[test]
fn apps_are_dropped_side_by_side() {
    let pool = PoolConfig {
        frames: 64,
        frame_bytes: 64,
    };
    // By a change of the graph, and with the workers.
    for is_change in [true, false] {
        let mut meeting = Meeting {
            present: Arc::default(),
            met: Arc::default(),
            number: 0,
        };
        let mut graph = Graph::new();
        for number in 0..APPS {
            meeting.number = number;
            graph.app(&format!("a{number}"), meeting.clone());
        }
        let mut workers = Workers::new(pool, CounterFile::private().unwrap());
        workers.configure(&graph).unwrap();
        if is_change {
            workers.configure(&Graph::new()).unwrap();
        }
        drop(workers);
        // One after the other, all but the last app would wait in vain.
        assert_eq!(meeting.met.load(Ordering::Relaxed), APPS as u64);
    }
}
