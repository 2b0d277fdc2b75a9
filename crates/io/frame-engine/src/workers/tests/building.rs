//! Tests of building and dropping apps while their worker visits others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::*;

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
            (false, _) => Err("the other apps of the worker have stopped".into()),
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
