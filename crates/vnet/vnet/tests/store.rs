//! Tests the store in memory with the conformance suite.

use std::cell::RefCell;
use std::rc::Rc;

use carina_time::{Duration, Instant};
use carina_vnet::store::Store;
use carina_vnet::store::conformance::{CASES, Subject};
use carina_vnet::store::memory::MemoryStore;

struct Memory {
    store: Rc<RefCell<MemoryStore>>,
    now: Instant,
}

impl Subject for Memory {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(Rc::clone(&self.store))
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

#[test]
fn memory_store_keeps_what_stores_keep() {
    let mut memory = Memory {
        store: Rc::new(RefCell::new(MemoryStore::new(64 << 20))),
        now: Instant::from_secs(1),
    };
    for (claim, case) in CASES {
        println!("{claim}");
        case(&mut memory);
    }
}
