//! Tests how requests end: a network that can never be made is refused at once and for good, a
//! failing one ends with its queueing time, and missing knowledge is not a refusal.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_vnet::document::{Boot, Document, Form, Kind};
use carina_vnet::host_part::{
    Cause, HostLimits, HostPart, HostStatus, NodePart, NodeState, RefusedChange, VnetId,
};
use carina_vnet::message::{
    AdvertisedHost, Advertisement, FromAgent, FromPip, FromVnp, Obstacle, PartKey, PartNode,
    PartRequest, PartStatus, Reason, ReasonCode, Standing, ToAgent, ToPip, ToVnp,
};
use carina_vnet::pip::inventory::{Discovery, Host, Inventory};
use carina_vnet::pip::{self, Pip};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::timing::Timing;
use carina_vnet::vnp::{self, Vnp};

const VNET: VnetId = VnetId::new(1);

type Shared = Rc<RefCell<MemoryStore>>;

fn pip() -> Pip<Shared> {
    pip_on(&Rc::new(RefCell::new(MemoryStore::new(1 << 20))))
}

/// A provider's process that has just begun, with what others have written.
fn pip_on(store: &Shared) -> Pip<Shared> {
    let host = Host {
        name: "h".to_owned(),
        cpus: 4,
        memory_mib: 1024,
        nics: 0,
        location: "de".to_owned(),
        labels: BTreeMap::new(),
        address: Ipv4Addr::new(192, 0, 2, 1),
        tunnel_addresses: 0,
    };
    let inventory = Inventory {
        discovery: Discovery::Pip,
        hosts: vec![host],
        links: vec![],
        borders: vec![],
    };
    Pip::new("p", inventory, Rc::clone(store), Timing::default()).unwrap()
}

fn report(limits: Option<HostLimits>) -> FromAgent {
    FromAgent {
        host: "h".to_owned(),
        limits,
        ..FromAgent::default()
    }
}

/// A node in de, which is a member of a DIF.
fn reserve(round: u64) -> ToPip {
    let node = NodePart {
        name: "r1".to_owned(),
        kind: Kind::Vm,
        image: "carina".to_owned(),
        cpus: 1,
        memory_mib: 256,
        boot: Boot::Clone,
        interfaces: vec![],
        routes: vec![],
        routes6: vec![],
        founder: Some("r1".to_owned()),
        has_loop: false,
        start: Default::default(),
    };
    let wanted = PartNode {
        node,
        location: vec!["de".to_owned()],
        nics: 0,
        labels: BTreeMap::new(),
        apart_from: vec![],
        host: None,
    };
    let part = PartRequest {
        name: "net".to_owned(),
        nodes: vec![wanted],
        links: vec![],
        access: vec![],
    };
    ToPip::Reserve {
        key: PartKey { vnet: VNET, round },
        part: Box::new(part),
    }
}

fn answers(pip: &mut Pip<Shared>) -> Vec<FromPip> {
    let outputs = std::iter::from_fn(|| pip.poll_transmit());
    let to_vnp = outputs.filter_map(|output| match output {
        pip::Output::ToVnp { message, .. } => Some(message),
        pip::Output::ToAgent { .. } => None,
    });
    to_vnp.collect()
}

fn refusal(pip: &mut Pip<Shared>, now: Instant, round: u64) -> Reason {
    pip.handle_vnp(now, "v", reserve(round));
    match &answers(pip)[..] {
        [FromPip::Refused { reason, .. }] => reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn host_that_was_not_heard_yet_is_no_refusal() {
    let (mut pip, began) = (pip(), Instant::from_secs(1000));
    let reason = refusal(&mut pip, began, 1);
    assert_eq!(reason.code, ReasonCode::Unreachable, "{reason:?}");
    // What would not fit even with all hosts is refused at once.
    let ToPip::Reserve { key, mut part } = reserve(2) else {
        panic!("it is a reservation");
    };
    part.nodes[0].node.cpus = 5;
    pip.handle_vnp(began, "v", ToPip::Reserve { key, part });
    let refused = answers(&mut pip);
    assert!(
        matches!(&refused[..], [FromPip::Refused { reason, .. }]
            if reason.code == ReasonCode::Insufficient && reason.message.contains("4 processors")),
        "{refused:?}"
    );
    let late = began + Timing::default().silence_max;
    assert_eq!(refusal(&mut pip, late, 3).code, ReasonCode::Insufficient);
    pip.handle_agent(late, report(None));
    pip.handle_vnp(late, "v", reserve(4));
    assert!(matches!(answers(&mut pip)[..], [FromPip::Offered { .. }]));
}

#[test]
fn lease_does_not_end_while_its_vnp_has_found_no_provider() {
    let (timing, began) = (Timing::default(), Instant::from_secs(1000));
    let store = Rc::new(RefCell::new(MemoryStore::new(1 << 20)));
    let mut pip = pip_on(&store);
    pip.handle_agent(began, report(None));
    pip.handle_vnp(began, "v", reserve(1));
    let key = PartKey {
        vnet: VNET,
        round: 1,
    };
    pip.handle_vnp(began, "v", ToPip::Commit { key, far: vec![] });
    answers(&mut pip);
    assert!(pip.owner(began, VNET).is_some());
    // Long after the lease has ended, a process that has just begun is asked for the part.
    let late = began + timing.lease * 2;
    let mut young = pip_on(&store);
    young.handle_timeout(late);
    young.handle_agent(late, report(None));
    young.handle_vnp(
        late + timing.check_interval,
        "v",
        ToPip::Renew { keys: vec![key] },
    );
    let heard = answers(&mut young);
    assert!(!heard.contains(&FromPip::Lapsed { key }), "{heard:?}");
    young.handle_timeout(late + timing.silence_max * 2);
    young.handle_vnp(
        late + timing.silence_max * 2,
        "v",
        ToPip::Renew { keys: vec![key] },
    );
    assert!(!answers(&mut young).contains(&FromPip::Lapsed { key }));
}

#[test]
fn node_beyond_the_limits_of_all_hosts_is_refused_unheld() {
    let (mut pip, now) = (pip(), Instant::from_secs(1000));
    let limits = HostLimits {
        member_memory_mib: 664,
        ..HostLimits::none()
    };
    pip.handle_agent(now, report(Some(limits)));
    let reason = refusal(&mut pip, now, 1);
    assert_eq!(reason.code, ReasonCode::Impossible);
    assert_eq!(reason.node.as_deref(), Some("r1"));
    assert_eq!(
        reason.message,
        "node r1 has 256 MiB of memory; a machine that is a member of a DIF needs 664"
    );
    pip.handle_agent(now, report(Some(HostLimits::none())));
    pip.handle_vnp(now, "v", reserve(2));
    assert!(matches!(answers(&mut pip)[..], [FromPip::Offered { .. }]));
}

#[test]
fn failure_is_noted_with_its_node_and_cause() {
    let (mut pip, now) = (pip(), Instant::from_secs(1000));
    pip.handle_agent(now, report(None));
    let failed = |reason: &str| NodeState::Failed {
        reason: reason.to_owned(),
        cause: Cause::Host,
    };
    let part = HostPart {
        vnet: VNET,
        name: "net".to_owned(),
        generation: 1,
        nodes: vec![],
        links: vec![],
    };
    let mut status = part.absent();
    status.nodes.insert("r1".to_owned(), Default::default());
    let mut say = |change: &dyn Fn(&mut HostStatus)| {
        change(&mut status);
        let mut failing = report(None);
        failing.parts = vec![status.clone()];
        pip.handle_agent(now, failing);
        std::iter::from_fn(|| pip.poll_note()).collect::<Vec<String>>()
    };
    let of_node = |state: NodeState| {
        move |status: &mut HostStatus| status.nodes.get_mut("r1").unwrap().state = state.clone()
    };
    assert!(say(&of_node(NodeState::Starting)).is_empty());
    let lines = say(&of_node(failed("starting VM r1: no /dev/kvm")));
    let line = "host h: network 0000000000000001: node r1 has failed: starting VM r1: no /dev/kvm";
    assert_eq!(lines, [line]);
    assert!(say(&of_node(failed("starting VM r1: no /dev/kvm"))).is_empty());
    let change = RefusedChange {
        generation: 2,
        node: "r2".to_owned(),
        state: failed("no room"),
    };
    let lines = say(&|status: &mut HostStatus| status.refused = Some(change.clone()));
    assert!(
        lines[0].contains("node r2 has failed: no room"),
        "{lines:?}"
    );
}

/// A VNP with two providers, of which `q` has nothing in de, and `p` may be silent.
struct Rig {
    vnp: Vnp<MemoryStore>,
    now: Instant,
    is_silent: bool,
    /// The status that `p` reports for its part.
    status: PartStatus,
    standing: Standing,
    released: u32,
}

impl Rig {
    fn new(on_insufficient: &str) -> Rig {
        let text = format!(
            "[vnet]\nname = \"x\"\non_insufficient = \"{on_insufficient}\"\n\
             [node.r1]\nlocation = [\"de\"]\n"
        );
        let document = Box::new(Document::read(&text, Form::Toml).unwrap());
        let pips = ["p", "q"].map(str::to_owned);
        let store = MemoryStore::new(1 << 20);
        let mut rig = Rig {
            vnp: Vnp::new("v", pips, store, Timing::default(), Random::new(1)),
            now: Instant::from_secs(1000),
            is_silent: false,
            status: PartStatus::default(),
            standing: Standing::default(),
            released: 0,
        };
        let want = ToVnp::Want {
            vnet: VNET,
            generation: 1,
            document,
        };
        rig.vnp.handle_vno(rig.now, "o", want);
        rig
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(250);
            self.vnp.handle_timeout(self.now);
            while let Some(output) = self.vnp.poll_transmit() {
                match output {
                    vnp::Output::ToVno { message, .. } => {
                        if let FromVnp::Standing { standing, .. } = message {
                            self.standing = standing;
                        }
                    }
                    vnp::Output::ToPip { pip, .. } if pip == "p" && self.is_silent => {}
                    vnp::Output::ToPip { pip, message } => self.answer(&pip, message),
                }
            }
        }
    }

    fn answer(&mut self, pip: &str, message: ToPip) {
        let answer = match message {
            ToPip::Advertise => {
                let location = if pip == "p" { "de" } else { "uk" };
                FromPip::Advertisement(Advertisement {
                    hosts: vec![AdvertisedHost {
                        cpus: 8,
                        memory_mib: 8192,
                        nics: 0,
                        location: location.to_owned(),
                        labels: [].into(),
                    }],
                    ..Advertisement::default()
                })
            }
            ToPip::Reserve { key, .. } => FromPip::Offered { key, ends: vec![] },
            ToPip::Commit { key, .. } => FromPip::Committed { key },
            ToPip::Cancel { key } => FromPip::Cancelled { key },
            ToPip::Release { key } => {
                self.released += 1;
                FromPip::Released { key }
            }
            ToPip::Renew { keys } => {
                for key in keys {
                    let status = self.status.clone();
                    let message = FromPip::Status { key, status };
                    self.vnp.handle_pip(self.now, pip, message);
                }
                return;
            }
            other => panic!("{other:?}"),
        };
        self.vnp.handle_pip(self.now, pip, answer);
    }

    fn refusal(&self) -> &Reason {
        assert!(self.standing.is_refused, "{:?}", self.standing);
        self.standing.reason.as_ref().unwrap()
    }
}

fn blocked_by(obstacle: Obstacle) -> PartStatus {
    PartStatus {
        obstacle: Some(obstacle),
        ..PartStatus::default()
    }
}

#[test]
fn cause_that_no_retry_mends_ends_the_request_with_that_cause() {
    let mut rig = Rig::new("queue 2m");
    rig.status = blocked_by(Obstacle::NodeRefused("r1".to_owned(), Cause::Room));
    rig.pass(Duration::from_secs(15));
    let reason = rig.refusal();
    assert_eq!(reason.code, ReasonCode::Impossible);
    assert_eq!(reason.node.as_deref(), Some("r1"));
    assert!(reason.message.contains(Cause::Room.words()), "{reason:?}");
    // Nothing is reserved for it any more.
    assert_eq!(rig.released, 1);
    rig.pass(Duration::from_secs(300));
    assert_eq!((rig.released, rig.standing.is_refused), (1, true));
}

#[test]
fn end_of_the_queue_ends_what_fails_again_and_again() {
    let mut rig = Rig::new("queue 2m");
    rig.status = blocked_by(Obstacle::NodeFailed("r1".to_owned(), Cause::Host));
    rig.pass(Duration::from_secs(100));
    assert!(!rig.standing.is_refused, "{:?}", rig.standing);
    let code = rig.standing.reason.as_ref().map(|reason| reason.code);
    assert_eq!(code, Some(ReasonCode::Failed));
    rig.pass(Duration::from_secs(40));
    let reason = rig.refusal();
    assert!(
        reason.message.contains("in the queue has expired"),
        "{reason:?}"
    );
    assert_eq!(rig.released, 1);
}

#[test]
fn network_that_was_ready_stays_when_a_node_fails_for_good() {
    let mut rig = Rig::new("reject");
    rig.status = PartStatus {
        are_nodes_up: true,
        are_links_up: true,
        are_consoles_ready: true,
        obstacle: None,
    };
    rig.pass(Duration::from_secs(15));
    assert!(rig.standing.is_ready());
    rig.status = blocked_by(Obstacle::NodeRefused("r1".to_owned(), Cause::Image));
    rig.pass(Duration::from_secs(15));
    assert!(!rig.standing.is_ready() && !rig.standing.is_refused);
    assert_eq!(rig.released, 0);
}

#[test]
fn provider_that_is_silent_for_a_moment_is_no_refusal() {
    let mut rig = Rig::new("reject");
    rig.is_silent = true;
    rig.pass(Duration::from_secs(10));
    assert!(!rig.standing.is_refused, "{:?}", rig.standing);
    let code = rig.standing.reason.as_ref().map(|reason| reason.code);
    assert_ne!(code, Some(ReasonCode::Insufficient));
    rig.is_silent = false;
    rig.status.are_nodes_up = true;
    rig.pass(Duration::from_secs(30));
    assert!(!rig.standing.is_refused, "{:?}", rig.standing);
    // A provider that stays silent is finally the reason for a refusal.
    let mut rig = Rig::new("reject");
    rig.is_silent = true;
    rig.pass(Duration::from_secs(120));
    let reason = rig.refusal();
    assert!(
        reason.message.contains("a provider has not answered"),
        "{reason:?}"
    );
}

/// A host that has refused a change does not get the same order again, but gets the next change.
#[test]
fn change_that_a_host_refuses_is_not_told_again() {
    let (mut pip, now) = (pip(), Instant::from_secs(1000));
    pip.handle_agent(now, report(None));
    let mut orders = 0;
    let mut say = |pip: &mut Pip<Shared>, now: Instant, parts: Vec<HostStatus>| {
        let mut failing = report(None);
        failing.parts = parts;
        pip.handle_agent(now, failing);
        while let Some(output) = pip.poll_transmit() {
            if let pip::Output::ToAgent { message, .. } = output {
                orders += u32::from(matches!(message, ToAgent::Set(_)));
            }
        }
        std::mem::take(&mut orders)
    };
    let make = |pip: &mut Pip<Shared>, round: u64| {
        pip.handle_vnp(now, "v", reserve(round));
        let key = PartKey { vnet: VNET, round };
        pip.handle_vnp(now, "v", ToPip::Commit { key, far: vec![] });
        let set = std::iter::from_fn(|| pip.poll_transmit()).find_map(|output| match output {
            pip::Output::ToAgent {
                message: ToAgent::Set(part),
                ..
            } => Some(part),
            _ => None,
        });
        set.unwrap().absent()
    };
    let first = make(&mut pip, 1);
    assert_eq!(say(&mut pip, now, vec![first.clone()]), 0);
    let second = make(&mut pip, 2);
    let later = |seconds: u64| now + Duration::from_secs(seconds);
    assert_eq!(say(&mut pip, later(2), vec![first.clone()]), 1);
    let refused = HostStatus {
        refused: Some(RefusedChange {
            generation: second.generation,
            node: "r1".to_owned(),
            state: NodeState::Refused {
                reason: "on h: no image".to_owned(),
                cause: Cause::Image,
            },
        }),
        ..first
    };
    assert_eq!(say(&mut pip, later(4), vec![refused.clone()]), 0);
    assert_eq!(say(&mut pip, later(6), vec![refused]), 0);
    pip.handle_vnp(
        later(7),
        "v",
        ToPip::Renew {
            keys: vec![PartKey {
                vnet: VNET,
                round: 2,
            }],
        },
    );
    let heard = answers(&mut pip);
    let obstacle = heard.iter().find_map(|message| match message {
        FromPip::Status { status, .. } => status.obstacle.clone(),
        _ => None,
    });
    assert_eq!(
        obstacle,
        Some(Obstacle::NodeRefused("r1".to_owned(), Cause::Image))
    );
}
