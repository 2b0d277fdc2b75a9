//! Tests of networks, with apps made for the tests: order, difference, drops, ticks.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use carina_frame::PoolConfig;

use super::*;
use crate::app::{AppConfig, AppContext, AppError, Opened, Port, PortList, PortNames};
use crate::link::FRAME_BURST;
use crate::notices::Notice;

/// Sends frames numbered by one byte, up to a count per breath.
#[derive(Clone, Debug, PartialEq)]
struct Numbers {
    per_breath: usize,
}

struct NumbersApp {
    config: Numbers,
    pool: Pool,
    next: u8,
}

impl AppConfig for Numbers {
    const KIND: &'static str = "numbers";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    type App = NumbersApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<NumbersApp, AppError> {
        if self.per_breath > FRAME_BURST {
            return Err("too many for a breath".into());
        }
        Ok(NumbersApp {
            config: self.clone(),
            pool: context.pool().clone(),
            next: 0,
        })
    }

    fn can_apply(&self, _old: &Numbers) -> bool {
        self.per_breath <= FRAME_BURST
    }

    fn apply(&self, app: &mut NumbersApp) {
        app.config = self.clone();
    }
}

impl FrameApp for NumbersApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let (pool, next) = (&self.pool, &mut self.next);
        ports.fill(0, self.config.per_breath, || {
            *next = next.wrapping_add(1);
            pool.frame_of(&[*next])
        });
    }
}

/// Keeps the first byte of each frame, up to a number per breath; other frames wait.
#[derive(Clone, Debug, PartialEq)]
struct Keeper {
    per_breath: usize,
}

#[derive(Default)]
struct KeeperApp {
    per_breath: usize,
    seen: Vec<u8>,
    names: Vec<String>,
    ticks: Cell<u32>,
}

impl AppConfig for Keeper {
    const KIND: &'static str = "keeper";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("copy")]);
    const TICK: Option<Duration> = Some(Duration::from_millis(10));
    type App = KeeperApp;

    fn build(&self, _: &mut AppContext<'_>) -> Result<KeeperApp, AppError> {
        Ok(KeeperApp {
            per_breath: self.per_breath,
            ..KeeperApp::default()
        })
    }
}

impl FrameApp for KeeperApp {
    fn push(&mut self, ports: &mut Ports<'_>) {
        for input in 0..ports.inputs() {
            for _ in 0..self.per_breath {
                let Some(frame) = ports.receive(input) else {
                    break;
                };
                self.seen.push(frame.bytes()[0]);
                ports.transmit(0, frame);
            }
        }
    }

    fn tick(&mut self, _: &mut Ports<'_>) {
        self.ticks.set(self.ticks.get() + 1);
    }

    fn rewired(&mut self, ports: &PortNames<'_>) {
        self.names = ports.inputs.to_vec();
    }
}

fn network() -> Network {
    let pool = Pool::new(PoolConfig {
        frames: 4096,
        frame_bytes: 64,
    });
    Network::new(pool.unwrap(), CounterFile::private().unwrap()).unwrap()
}

fn pair(numbers: usize, keeper: usize) -> Graph {
    let mut graph = Graph::new();
    graph.app(
        "n",
        Numbers {
            per_breath: numbers,
        },
    );
    graph.app("k", Keeper { per_breath: keeper });
    graph.link("n.output -> k.a").unwrap();
    graph
}

fn seen(network: &Network, app: &str) -> Vec<u8> {
    network.app::<KeeperApp>(app).unwrap().seen.clone()
}

#[test]
fn frames_go_through_a_graph_within_one_breath() {
    let mut network = network();
    network.configure(&pair(3, 10)).unwrap();
    assert!(network.breathe(Instant::ZERO));
    assert_eq!(seen(&network, "k"), [1, 2, 3]);
    let counts = network.link_counts().next().unwrap().1;
    assert_eq!((counts.packets, counts.bytes, counts.drops), (3, 3, 0));
    // The copies have no link, so they are dropped and counted.
    assert_eq!(network.unlinked.get(), 3);
    assert_eq!(network.pool().spare(), 4096);
}

#[test]
fn unchanged_apps_keep_their_state_and_links_their_frames() {
    let mut network = network();
    network.configure(&pair(3, 1)).unwrap();
    network.breathe(Instant::ZERO);
    let mut graph = pair(2, 1);
    graph.app("m", Numbers { per_breath: 1 });
    graph.link("m.output -> k.b").unwrap();
    let steps = network.configure(&graph).unwrap();
    assert_eq!(
        steps.to_string(),
        "+ app m\n~ app n\n+ link m.output -> k.b"
    );
    network.breathe(Instant::ZERO);
    // The keeper continues with frame 2 on its first input, and the numbers with 4.
    assert_eq!(seen(&network, "k"), [1, 2, 1]);
    let keeper = network.app::<KeeperApp>("k").unwrap();
    assert_eq!(keeper.names, ["a", "b"]);
    assert_eq!(network.app::<NumbersApp>("n").unwrap().next, 5);
    // Frames on a link that is removed are dropped and counted.
    let waiting: usize = network.links.iter().map(|link| link.queue.len()).sum();
    network.configure(&Graph::new()).unwrap();
    assert_eq!(network.discarded.get(), waiting as u64);
    assert_eq!(network.pool().spare(), 4096);
}

#[test]
fn app_that_cannot_be_made_changes_nothing() {
    let mut network = network();
    network.configure(&pair(1, 1)).unwrap();
    network.breathe(Instant::ZERO);
    let mut graph = pair(2, 9);
    graph.app("bad", Numbers { per_breath: 1000 });
    graph.app("k2", Keeper { per_breath: 1 });
    graph.link("bad.output -> k2.a").unwrap();
    let error = network.configure(&graph).unwrap_err().to_string();
    assert_eq!(error, "app bad (numbers): too many for a breath");
    network.breathe(Instant::ZERO);
    assert_eq!(seen(&network, "k"), [1, 2]);
}

/// Takes the number of the app that it replaces, plus one.
#[derive(Clone, Debug, PartialEq)]
struct Heir {
    version: u32,
}

struct HeirApp {
    generation: u32,
}

impl AppConfig for Heir {
    const KIND: &'static str = "heir";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::NO_PORT;
    type App = HeirApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<HeirApp, AppError> {
        let old = context.running::<HeirApp>().map(|old| old.generation);
        context.notices().add(Notice {
            app: context.name().to_owned(),
            text: format!("after {old:?}"),
            has_stopped: false,
        });
        let generation = old.unwrap_or(0) + 1;
        Ok(HeirApp { generation })
    }
}

impl FrameApp for HeirApp {}

#[test]
fn app_knows_the_app_that_it_replaces() {
    let mut network = network();
    for (name, version, generation) in [("h", 1, 1), ("h", 2, 2), ("h", 2, 2), ("g", 3, 1)] {
        let mut graph = Graph::new();
        graph.app(name, Heir { version });
        network.configure(&graph).unwrap();
        let app = network.app::<HeirApp>(name).unwrap();
        assert_eq!(app.generation, generation, "{name}, {version}");
    }
    let (notices, missed) = network.notices().take();
    let notices: Vec<_> = notices.iter().map(|notice| notice.text.as_str()).collect();
    assert_eq!(
        (notices, missed),
        (vec!["after None", "after Some(1)", "after None"], 0)
    );
}

/// Its `open` returns only when several apps open at the same time. The app keeps what it opened.
#[derive(Clone, Debug)]
struct Meeting {
    expected: usize,
    came: Arc<AtomicUsize>,
}

impl PartialEq for Meeting {
    fn eq(&self, other: &Meeting) -> bool {
        Arc::ptr_eq(&self.came, &other.came)
    }
}

struct MeetingApp {
    met: Option<usize>,
}

impl AppConfig for Meeting {
    const KIND: &'static str = "meeting";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::NO_PORT;
    const OPENS: bool = true;
    type App = MeetingApp;

    fn open(&self, _: &mut AppContext<'_>) -> Option<Opened> {
        self.came.fetch_add(1, Ordering::SeqCst);
        let begun = std::time::Instant::now();
        while self.came.load(Ordering::SeqCst) < self.expected {
            if begun.elapsed() > std::time::Duration::from_secs(30) {
                return Some(Err("the others do not come".into()));
            }
            std::thread::yield_now();
        }
        Some(Ok(Box::new(self.expected)))
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<MeetingApp, AppError> {
        let met = context.take_opened()?;
        Ok(MeetingApp { met })
    }
}

impl FrameApp for MeetingApp {}

#[test]
fn apps_that_are_made_together_open_at_once() {
    let mut network = network();
    let graph = |names: &[&str]| {
        let (expected, came) = (names.len(), Arc::default());
        let meeting = Meeting { expected, came };
        let mut graph = Graph::new();
        for name in names {
            graph.app(name, meeting.clone());
        }
        graph
    };
    network.configure(&graph(&["a", "b", "c"])).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(network.app::<MeetingApp>(name).unwrap().met, Some(3));
    }
    // A single app opens what it needs when it is built.
    network.configure(&graph(&["a"])).unwrap();
    assert_eq!(network.app::<MeetingApp>("a").unwrap().met, None);
}

#[test]
fn full_link_drops_and_counts() {
    let mut network = network();
    let mut graph = Graph::new();
    graph.app("n", Numbers { per_breath: 100 });
    graph.app("a", Keeper { per_breath: 100 });
    graph.app("b", Keeper { per_breath: 1 });
    graph.link("n.output -> a.in").unwrap();
    graph.link("a.copy -> b.in").unwrap();
    network.configure(&graph).unwrap();
    for _ in 0..20 {
        network.breathe(Instant::ZERO);
    }
    let counts: Vec<LinkCounts> = network.link_counts().map(|(_, counts)| counts).collect();
    // 2000 frames: the last app took 20, and 1024 wait, minus the one that it took last.
    assert_eq!((counts[0].packets, counts[0].drops), (1043, 957));
    assert_eq!((counts[1].packets, counts[1].drops), (2000, 0));
}

#[test]
fn traced_link_shows_what_is_put_on_it_until_it_goes() {
    let mut network = network();
    let mut graph = pair(3, 2);
    network.configure(&graph).unwrap();
    let link: LinkName = "n.output -> k.a".parse().unwrap();
    let other: LinkName = "k.copy -> n.a".parse().unwrap();
    network.breathe(Instant::ZERO);
    let (tap, reader) = Tap::new(64);
    assert!(network.trace(&link, tap));
    assert!(!network.trace(&other, Tap::new(64).0));
    // Frame 3 waits on the link from before.
    network.breathe(Instant::ZERO);
    // A change of the apps around the link does not change the link.
    graph.app("m", Numbers { per_breath: 1 });
    graph.link("m.output -> k.b").unwrap();
    network.configure(&graph).unwrap();
    network.breathe(Instant::ZERO);
    let batch = reader.take();
    let shown: Vec<u8> = batch.iter().map(|tapped| tapped.bytes[0]).collect();
    assert_eq!(shown, [4, 5, 6, 7, 8, 9]);
    assert!(!reader.is_over());
    network.configure(&Graph::new()).unwrap();
    assert!(reader.is_over() && reader.take().is_empty());
}

#[test]
fn circle_of_links_moves_on_in_each_breath() {
    let mut network = network();
    let mut graph = pair(1, 5);
    graph.app("l", Keeper { per_breath: 5 });
    graph.link("k.copy -> l.in").unwrap();
    graph.link("l.copy -> k.b").unwrap();
    network.configure(&graph).unwrap();
    assert!(network.breathe(Instant::ZERO) && network.has_frames());
    network.breathe(Instant::ZERO);
    assert_eq!(seen(&network, "k"), [1, 2, 1]);
    assert_eq!(seen(&network, "l"), [1, 2, 1]);
}

#[test]
fn ticks_come_at_their_interval() {
    let mut network = network();
    network.configure(&pair(1, 1)).unwrap();
    for millis in 0..100 {
        network.breathe(Instant::from_millis(millis));
    }
    assert_eq!(network.app::<KeeperApp>("k").unwrap().ticks.get(), 10);
    assert_eq!(network.next_deadline(), Some(Instant::from_millis(100)));
}

#[test]
fn wrong_graphs_are_refused_with_what_would_be_right() {
    let mut network = network();
    let mut refusal = |change: &dyn Fn(&mut Graph)| {
        let mut graph = pair(1, 1);
        change(&mut graph);
        network.configure(&graph).unwrap_err().to_string()
    };
    let link = |text: &'static str| {
        move |graph: &mut Graph| {
            graph.link(text).unwrap();
        }
    };
    assert_eq!(
        refusal(&link("n.out -> k.b")),
        "app n (numbers) has no output out; it has output"
    );
    assert_eq!(
        refusal(&link("x.output -> k.b")),
        "link x.output -> k.b: there is no app x"
    );
    assert_eq!(
        refusal(&link("n.output -> k.b")),
        "output n.output has two links"
    );
    assert_eq!(
        refusal(&link("k.copy -> k.b")),
        "link k.copy -> k.b: an app cannot be linked with itself"
    );
    let app = |graph: &mut Graph| {
        graph.app("m", Numbers { per_breath: 1 });
    };
    assert_eq!(refusal(&app), "output m.output has no link");
    let text = |text: &str| text.parse::<LinkName>().unwrap_err().to_string();
    assert!(text("n.output k.b").contains("APP.PORT -> APP.PORT"));
    assert!(text("n.ou tput -> k.b").contains("a name has 1 to 32 letters"));
}
