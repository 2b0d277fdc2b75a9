//! Tests two processes of a VNP on one store: each continues with what the other has written, and
//! does not take an answer to one step for an answer to another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::VnetId;
use carina_vnet::message::{
    AdvertisedHost, Advertisement, FromPip, FromVnp, PartKey, PartStatus, ToPip, ToVnp,
};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::timing::Timing;
use carina_vnet::vnp::{Output, Vnp};

use crate::behind::LateStore;

/// Two processes of a VNP that leases from one provider, and the switch that delays the `changes`
/// of the other.
struct Pair {
    one: Vnp<LateStore>,
    other: Vnp<LateStore>,
    other_is_late: Rc<Cell<bool>>,
}

impl Pair {
    fn new() -> Pair {
        let store = Rc::new(RefCell::new(MemoryStore::new(1 << 20)));
        let process = |seed: u64| {
            let is_late = Rc::new(Cell::new(false));
            let store = LateStore {
                store: Rc::clone(&store),
                is_late: Rc::clone(&is_late),
            };
            let pips = [PIP.to_owned()];
            let vnp = Vnp::new("v", pips, store, Timing::default(), Random::new(seed));
            (vnp, is_late)
        };
        let (mut one, _) = process(1);
        let (mut other, other_is_late) = process(2);
        one.handle_timeout(NOW);
        other.handle_timeout(NOW);
        sent(&mut one);
        sent(&mut other);
        Pair {
            one,
            other,
            other_is_late,
        }
    }

    /// The network was requested and all its resources are reserved: both processes know that, and
    /// the provider was asked to make it.
    fn committing() -> Pair {
        let mut pair = Pair::new();
        let text = "[vnet]\nname = \"net\"\n[node.r1]\n";
        let document = Box::new(Document::read(text, Form::Toml).unwrap());
        let want = ToVnp::Want {
            vnet: VNET,
            generation: 1,
            document,
        };
        pair.one.handle_vno(NOW, OPERATOR, want);
        let seen = FromPip::Advertisement(advertisement());
        pair.one.handle_pip(NOW, PIP, seen);
        let ends = vec![];
        pair.one
            .handle_pip(NOW, PIP, FromPip::Offered { key: KEY, ends });
        let (orders, _) = sent(&mut pair.one);
        let far = vec![];
        assert_eq!(orders.last(), Some(&ToPip::Commit { key: KEY, far }));
        pair.other.handle_timeout(NOW);
        sent(&mut pair.other);
        pair
    }
}

/// All messages of a process: to the provider, and to the operator.
fn sent(vnp: &mut Vnp<LateStore>) -> (Vec<ToPip>, Vec<FromVnp>) {
    let (mut orders, mut answers) = (Vec::new(), Vec::new());
    while let Some(output) = vnp.poll_transmit() {
        match output {
            Output::ToPip { message, .. } => orders.push(message),
            Output::ToVno { message, .. } => answers.push(message),
        }
    }
    (orders, answers)
}

fn advertisement() -> Advertisement {
    let host = AdvertisedHost {
        cpus: 4,
        memory_mib: 1024,
        nics: 0,
        location: "uk".to_owned(),
        labels: [].into(),
    };
    Advertisement {
        is_exact: true,
        hosts: vec![host],
        links: vec![],
        borders: vec![],
    }
}

#[test]
fn commitment_is_not_taken_for_a_release() {
    // Both processes learn that the part is made; the other one is behind, and cannot write it
    // down.
    let Pair {
        mut one,
        mut other,
        other_is_late,
    } = Pair::committing();
    other_is_late.set(true);
    one.handle_pip(NOW, PIP, FromPip::Committed { key: KEY });
    other.handle_pip(NOW, PIP, FromPip::Committed { key: KEY });
    // The operator requests the removal. The process that gets the request ends before it sends
    // anything.
    one.handle_vno(NOW, OPERATOR, ToVnp::Remove { vnet: VNET });
    drop(one);
    sent(&mut other);
    other_is_late.set(false);
    other.handle_timeout(NOW + Duration::from_secs(1));
    let (orders, answers) = sent(&mut other);
    assert_eq!(orders, [ToPip::Release { key: KEY }]);
    let removed = FromVnp::Removed { vnet: VNET };
    assert!(!answers.contains(&removed), "{answers:?}");
    other.handle_pip(NOW, PIP, FromPip::Released { key: KEY });
    assert_eq!(sent(&mut other), (vec![], vec![removed]));
}

#[test]
fn removal_goes_on_at_once_where_another_began_it() {
    let Pair {
        mut one, mut other, ..
    } = Pair::committing();
    one.handle_pip(NOW, PIP, FromPip::Committed { key: KEY });
    let status = PartStatus {
        are_nodes_up: true,
        are_links_up: true,
        are_consoles_ready: true,
        obstacle: None,
    };
    // Everything is well: the other process checks again in a minute.
    other.handle_pip(NOW, PIP, FromPip::Status { key: KEY, status });
    other.handle_timeout(NOW);
    let soon = NOW + Duration::from_secs(1);
    one.handle_vno(soon, OPERATOR, ToVnp::Remove { vnet: VNET });
    drop(one);
    sent(&mut other);
    // It reads the change when it gets the next message.
    let held = FromPip::Held { key: KEY };
    other.handle_pip(soon, PIP, held);
    assert_eq!(other.poll_timeout(), soon);
    other.handle_timeout(soon);
    let (orders, _) = sent(&mut other);
    assert_eq!(orders, [ToPip::Release { key: KEY }]);
}

#[test]
fn network_is_not_called_removed_by_one_that_is_behind() {
    let Pair {
        mut one,
        mut other,
        other_is_late,
    } = Pair::new();
    other_is_late.set(true);
    let text = "[vnet]\nname = \"net\"\n[node.r1]\n";
    let document = Box::new(Document::read(text, Form::Toml).unwrap());
    let want = ToVnp::Want {
        vnet: VNET,
        generation: 1,
        document,
    };
    one.handle_vno(NOW, OPERATOR, want);
    other.handle_vno(NOW, OPERATOR, ToVnp::Remove { vnet: VNET });
    assert_eq!(sent(&mut other), (vec![], vec![]));
    other_is_late.set(false);
    other.handle_vno(NOW, OPERATOR, ToVnp::Remove { vnet: VNET });
    let removed = FromVnp::Removed { vnet: VNET };
    assert!(sent(&mut other).1.contains(&removed));
}

const NOW: Instant = Instant::from_secs(1000);

const VNET: VnetId = VnetId::new(7);

const KEY: PartKey = PartKey {
    vnet: VNET,
    round: 1,
};

const PIP: &str = "p";

const OPERATOR: &str = "o";
