//! Random operations on a ring, compared with a model of plain collections.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use carina_ring::{
    Consumer, Lease, Producer, Refused, RingMap, WakeMode, record_cost, region_bytes,
};
use carina_sys::Memory;
use proptest::prelude::*;

const CAPACITY: usize = 4096;

#[derive(Clone, Debug)]
enum Operation {
    Push { len: usize, more: bool },
    PushSdu { len: usize },
    Abandon { len: usize },
    Shorten { len: usize, keep: usize },
    Publish,
    Next,
    TakeSdu { room: usize },
    Peek,
    Release,
    ReleaseLazily,
    ReleaseOldest { count: usize },
    ArmData,
    ArmSpace { bytes: usize },
    Resume,
}

fn operation() -> impl Strategy<Value = Operation> {
    let len = prop_oneof![4 => 0usize..200, 2 => 0usize..2000, 1 => 4080usize..4100];
    prop_oneof![
        6 => (len.clone(), any::<bool>()).prop_map(|(len, more)| Operation::Push { len, more }),
        3 => len.clone().prop_map(|len| Operation::PushSdu { len }),
        3 => len.clone().prop_map(|room| Operation::TakeSdu { room }),
        1 => len.clone().prop_map(|len| Operation::Abandon { len }),
        1 => (0usize..300, 0usize..300)
            .prop_map(|(len, keep)| Operation::Shorten { len: len.max(keep), keep }),
        4 => Just(Operation::Publish),
        4 => Just(Operation::Next),
        2 => Just(Operation::Peek),
        2 => Just(Operation::Release),
        2 => Just(Operation::ReleaseLazily),
        1 => (1usize..4).prop_map(|count| Operation::ReleaseOldest { count }),
        1 => Just(Operation::ArmData),
        1 => (0usize..5000).prop_map(|bytes| Operation::ArmSpace { bytes }),
        1 => Just(Operation::Resume),
    ]
}

/// The ring under test, and the contents that it must have.
struct Bench {
    tx: Producer,
    rx: Consumer,
    /// Committed but not yet published.
    staged: VecDeque<(Vec<u8>, bool)>,
    /// Published but not yet read.
    queued: VecDeque<(Vec<u8>, bool)>,
    /// Read but not yet released. Pieces that were copied out have no lease.
    held: VecDeque<(Option<Lease>, Vec<u8>)>,
    used: usize,
    data_armed: bool,
    space_armed: Option<usize>,
    counter: u8,
}

impl Bench {
    fn new() -> Self {
        let memory = Memory::anonymous("model", region_bytes(CAPACITY)).unwrap();
        let map = Arc::new(RingMap::map(memory.as_fd(), 0, CAPACITY).unwrap());
        map.init();
        Self {
            tx: Producer::fresh(map.clone(), WakeMode::Fence),
            rx: Consumer::fresh(map, WakeMode::Fence),
            staged: VecDeque::new(),
            queued: VecDeque::new(),
            held: VecDeque::new(),
            used: 0,
            data_armed: false,
            space_armed: None,
            counter: 0,
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.counter = self.counter.wrapping_add(1);
        (0..len).map(|at| self.counter ^ at as u8).collect()
    }

    fn expected(&self, len: usize) -> Result<(), Refused> {
        let len_max = CAPACITY - 8;
        if len > len_max {
            Err(Refused::TooLong { len, len_max })
        } else if self.used + record_cost(len) > CAPACITY {
            Err(Refused::Full)
        } else {
            Ok(())
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Push { len, more } => {
                let bytes = self.bytes(len);
                let expected = self.expected(len);
                let (a, b) = bytes.split_at(len / 3);
                assert_eq!(self.tx.push(&[a, b], more), expected);
                if expected.is_ok() {
                    self.used += record_cost(len);
                    self.staged.push_back((bytes, more));
                }
            }
            Operation::PushSdu { len } => {
                let bytes = self.bytes(len);
                let is_taken = self.expected(len).is_ok();
                assert_eq!(self.tx.push_sdu(&bytes), is_taken);
                if is_taken {
                    self.used += record_cost(len);
                    self.staged.push_back((bytes, false));
                }
            }
            Operation::TakeSdu { room } => {
                let mut buffer = vec![0; room];
                // `None` may only mean that the consumer must look at the tail again.
                if let Some(len) = self.rx.take_sdu(&mut buffer) {
                    buffer.truncate(len);
                    let expected = self.queued.pop_front();
                    assert_eq!(expected, Some((buffer.clone(), false)));
                    self.held.push_back((None, buffer));
                }
            }
            Operation::Abandon { len } => {
                let expected = self.expected(len);
                assert_eq!(self.tx.reserve(len).map(drop), expected);
            }
            Operation::Shorten { len, keep } => {
                let bytes = self.bytes(keep);
                if let Ok(mut slot) = self.tx.reserve(len) {
                    slot.write_at(0, &bytes);
                    slot.commit_len(keep, false);
                    self.used += record_cost(keep);
                    self.staged.push_back((bytes, false));
                }
            }
            Operation::Publish => {
                let rings = self.data_armed && !self.staged.is_empty();
                assert_eq!(self.tx.publish(), rings);
                self.data_armed &= !rings;
                self.queued.append(&mut self.staged);
            }
            Operation::Next => {
                let lease = self.rx.next().unwrap();
                let expected = self.queued.pop_front();
                assert_eq!(
                    lease.as_ref().map(|lease| (lease.to_vec(), lease.more())),
                    expected
                );
                if let (Some(lease), Some((bytes, _))) = (lease, expected) {
                    self.held.push_back((Some(lease), bytes));
                }
            }
            Operation::Peek => {
                let seen = self.rx.peek().unwrap().map(|piece| {
                    let mut bytes = Vec::new();
                    piece.append_to(&mut bytes);
                    (bytes, piece.more())
                });
                assert_eq!(seen.as_ref(), self.queued.front());
            }
            Operation::Release => {
                let rings = self.rx.release();
                self.note_release(self.held.len(), rings);
            }
            Operation::ReleaseLazily => {
                let before = self.rx.released();
                let rings = self.rx.release_lazily();
                let all = self.rx.released() == self.rx.consumed();
                assert!(all || self.rx.released() == before);
                self.note_release(if all { self.held.len() } else { 0 }, rings);
            }
            Operation::ReleaseOldest { count } => {
                let count = count.min(self.held.len());
                let last = count.checked_sub(1).map(|last| &self.held[last]);
                if let Some((Some(lease), _)) = last {
                    let rings = self.rx.release_upto(lease);
                    self.note_release(count, rings);
                }
            }
            Operation::ArmData => {
                self.data_armed = self.queued.is_empty();
                assert_eq!(self.rx.arm(), self.data_armed);
            }
            Operation::ArmSpace { bytes } => {
                let short = CAPACITY - self.used < bytes.min(CAPACITY);
                assert_eq!(self.tx.arm_space(bytes).unwrap(), short);
                self.space_armed = short.then_some(bytes.min(CAPACITY));
            }
            Operation::Resume => {
                // A new producer knows only what was published. The leases end with the old reader.
                self.used -= self
                    .staged
                    .drain(..)
                    .map(|(b, _)| record_cost(b.len()))
                    .sum::<usize>();
                let rings = self.rx.release();
                self.note_release(self.held.len(), rings);
                let map = self.tx.map().clone();
                self.tx = Producer::new(map.clone(), WakeMode::Fence).unwrap();
                self.rx = Consumer::new(map, WakeMode::Fence).unwrap();
            }
        }
        for (lease, bytes) in &self.held {
            let seen = lease.as_ref().map(Lease::to_vec);
            assert!(
                seen.is_none_or(|seen| seen == *bytes),
                "a held piece changed"
            );
        }
        assert_eq!(self.tx.free_bytes().unwrap(), CAPACITY - self.used);
    }

    fn note_release(&mut self, count: usize, rings: bool) {
        let bytes: usize = self
            .held
            .drain(..count)
            .map(|(_, b)| record_cost(b.len()))
            .sum();
        self.used -= bytes;
        // The consumer cannot see records that are committed but not published.
        let staged: usize = self.staged.iter().map(|(b, _)| record_cost(b.len())).sum();
        let free = CAPACITY - (self.used - staged);
        let expected = bytes > 0 && self.space_armed.is_some_and(|want| free >= want);
        assert_eq!(rings, expected);
        if rings {
            self.space_armed = None;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn ring_behaves_as_a_bounded_queue(operations in prop::collection::vec(operation(), 1..120)) {
        let mut bench = Bench::new();
        for operation in &operations {
            bench.apply(operation);
        }
    }
}
