//! Tests two processes of a provider on one store, of which one has not yet read what the other has
//! written: it must not report as gone what it does not know.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use carina_time::{Duration, Instant};
use carina_vnet::document::{Boot, Kind};
use carina_vnet::host_part::{HostPart, HostStatus, NodePart, VnetId};
use carina_vnet::message::{FromAgent, FromPip, PartKey, PartNode, PartRequest, ToAgent, ToPip};
use carina_vnet::pip::inventory::{Discovery, Host, Inventory};
use carina_vnet::pip::{Output, Pip};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::store::{
    Changes, KeyRange, LeaseId, Outcome, Revision, Snapshot, Store, StoreError, Transaction,
};
use carina_vnet::timing::Timing;

/// A store whose `changes` are delayed while a test says so.
#[derive(Clone)]
pub(crate) struct LateStore {
    pub store: Rc<RefCell<MemoryStore>>,
    pub is_late: Rc<Cell<bool>>,
}

impl Store for LateStore {
    fn range(&mut self, now: Instant, range: &KeyRange) -> Result<Snapshot, StoreError> {
        self.store.range(now, range)
    }

    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError> {
        if self.is_late.get() {
            Ok(Changes {
                through: after,
                ..Changes::default()
            })
        } else {
            self.store.changes(now, range, after)
        }
    }

    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError> {
        self.store.commit(now, transaction)
    }

    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.store.grant(now, ttl)
    }

    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.store.renew(now, lease)
    }

    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.store.revoke(now, lease)
    }

    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError> {
        self.store.compact(now, through)
    }
}

/// A process of a provider with one host, on a store; and the switch that delays its `changes`.
fn process(store: &Rc<RefCell<MemoryStore>>) -> (Pip<LateStore>, Rc<Cell<bool>>) {
    let host = Host {
        name: "h".to_owned(),
        cpus: 4,
        memory_mib: 1024,
        nics: 0,
        location: "uk".to_owned(),
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
    let is_late = Rc::new(Cell::new(false));
    let store = LateStore {
        store: Rc::clone(store),
        is_late: Rc::clone(&is_late),
    };
    let mut pip = Pip::new("p", inventory, store, Timing::default()).unwrap();
    pip.handle_agent(NOW, report(vec![]));
    (pip, is_late)
}

fn report(parts: Vec<HostStatus>) -> FromAgent {
    FromAgent {
        host: "h".to_owned(),
        parts,
        removed: BTreeMap::new(),
        ..FromAgent::default()
    }
}

/// All messages of the process: to its VNP, and to its host.
fn says(pip: &mut Pip<LateStore>) -> (Vec<FromPip>, Vec<ToAgent>) {
    let (mut answers, mut orders) = (Vec::new(), Vec::new());
    while let Some(output) = pip.poll_transmit() {
        match output {
            Output::ToVnp { message, .. } => answers.push(message),
            Output::ToAgent { message, .. } => orders.push(message),
        }
    }
    (answers, orders)
}

/// A part that one process has made while the other did not read the store: both processes, the
/// host's part, and the switch of the other.
fn made() -> (Pip<LateStore>, Pip<LateStore>, HostPart, Rc<Cell<bool>>) {
    let store = Rc::new(RefCell::new(MemoryStore::new(1 << 20)));
    let (mut one, _) = process(&store);
    let (other, is_late) = process(&store);
    is_late.set(true);
    let node = NodePart {
        name: "r1".to_owned(),
        kind: Kind::Vm,
        image: "carina".to_owned(),
        cpus: 1,
        memory_mib: 128,
        boot: Boot::Clone,
        interfaces: vec![],
        routes: vec![],
        routes6: vec![],
        founder: None,
        has_loop: false,
        start: Default::default(),
    };
    let wanted = PartNode {
        node,
        location: vec![],
        nics: 0,
        labels: BTreeMap::new(),
        apart_from: vec![],
        host: None,
    };
    let part = Box::new(PartRequest {
        name: "net".to_owned(),
        nodes: vec![wanted],
        links: vec![],
        access: vec![],
    });
    one.handle_vnp(NOW, "a", ToPip::Reserve { key: KEY, part });
    let far = vec![];
    one.handle_vnp(NOW, "a", ToPip::Commit { key: KEY, far });
    let (answers, orders) = says(&mut one);
    assert_eq!(answers.last(), Some(&FromPip::Committed { key: KEY }));
    let [ToAgent::Set(part)] = &orders[..] else {
        panic!("{orders:?}");
    };
    (one, other, (**part).clone(), is_late)
}

#[test]
fn part_is_not_called_gone_by_one_that_is_behind() {
    let (_, mut other, _, is_late) = made();
    let asked = [
        ToPip::Renew { keys: vec![KEY] },
        ToPip::Commit {
            key: KEY,
            far: vec![],
        },
        ToPip::Release { key: KEY },
    ];
    for message in asked {
        other.handle_vnp(NOW, "a", message.clone());
        assert_eq!(says(&mut other), (vec![], vec![]), "{message:?}");
    }
    is_late.set(false);
    other.handle_vnp(NOW, "a", ToPip::Renew { keys: vec![KEY] });
    let (answers, _) = says(&mut other);
    let is_status = |pip: &FromPip| matches!(pip, FromPip::Status { key: KEY, .. });
    assert!(answers.iter().all(is_status) && !answers.is_empty());
}

#[test]
fn host_is_not_told_to_remove_what_another_has_ordered() {
    let (_, mut other, part, is_late) = made();
    other.handle_agent(NOW, report(vec![part.absent()]));
    assert_eq!(says(&mut other), (vec![], vec![]));
    is_late.set(false);
    let later = NOW + Duration::from_secs(1);
    other.handle_agent(later, report(vec![part.absent()]));
    let (_, orders) = says(&mut other);
    assert_eq!(orders, []);
}

#[test]
fn order_is_not_repeated_at_once() {
    let (mut one, _, part, _) = made();
    // The host reports repeatedly that it has nothing.
    one.handle_agent(NOW, report(vec![]));
    one.handle_agent(NOW, report(vec![]));
    assert_eq!(says(&mut one).1, []);
    let later = NOW + Timing::default().repeat;
    one.handle_agent(later, report(vec![]));
    one.handle_agent(later, report(vec![]));
    assert_eq!(says(&mut one).1, [ToAgent::Set(Box::new(part))]);
}

const NOW: Instant = Instant::from_secs(1000);

const KEY: PartKey = PartKey {
    vnet: VnetId::new(7),
    round: 1,
};
