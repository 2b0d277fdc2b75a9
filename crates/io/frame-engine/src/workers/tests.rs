//! Tests of graphs on several threads: order, difference, refusals, sleep.

mod building;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
