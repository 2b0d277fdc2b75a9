//! Tests of the drivers against a model of their devices: registers, and correct and faulty
//! accesses of a device to its rings.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::*;

/// The model of a device: its registers, and the memory that it may access.
struct Device {
    model: Model,
    registers: RefCell<BTreeMap<u32, u32>>,
    /// The register writes of the driver, in order.
    log: RefCell<Vec<(u32, u32)>>,
    memory: DmaMemory,
    missed: Cell<u32>,
    /// Whether the device never completes a reset.
    is_dead: Cell<bool>,
}

#[derive(Clone)]
struct Wire(Rc<Device>);

const CTRL: u32 = 0;
const RESET: u32 = 1 << 26;
const MISSED: u32 = 0x4010;
const MISSED_IXGBE: u32 = 0x3fa0;

impl Registers for Wire {
    fn read(&self, at: u32) -> u32 {
        let device = &self.0;
        let stored = device.registers.borrow().get(&at).copied().unwrap_or(0);
        match (device.model, at) {
            (_, CTRL) if !device.is_dead.get() => stored & !(RESET | 1 << 3),
            (Model::Ixgbe, MISSED_IXGBE) => device.missed.take(),
            (Model::Ixgbe, 0x1_0010) => 1 << 9,
            (Model::Ixgbe, 0x2f00) => stored | 1 << 3,
            (Model::Ixgbe, 0x42a4) => 1 << 30 | 3 << 28,
            (Model::Ixgbe, _) => stored,
            (_, MISSED) => device.missed.take(),
            // Link up, 1 Gbit/s.
            (_, 0x8) => 1 << 1 | 2 << 6,
            (_, 0x10) => 1 << 9,
            (Model::Igb, 0x20) => stored | 1 << 28,
            _ => stored,
        }
    }

    fn write(&self, at: u32, value: u32) {
        let device = &self.0;
        device.log.borrow_mut().push((at, value));
        if at == CTRL && value & RESET != 0 {
            device.registers.borrow_mut().clear();
            let mut registers = device.registers.borrow_mut();
            registers.insert(0x5400, 0x1200_5452);
            registers.insert(0x5404, 0x8000_5634);
        }
        device.registers.borrow_mut().insert(at, value);
    }
}

impl Device {
    fn ring(&self, queue: u32, sends: bool) -> u32 {
        let (receive, send) = self.model.tails(queue);
        if sends { send - 0x18 } else { receive - 0x18 }
    }

    fn register(&self, at: u32) -> u32 {
        self.registers.borrow().get(&at).copied().unwrap_or(0)
    }

    fn set(&self, at: u32, value: u32) {
        self.registers.borrow_mut().insert(at, value);
    }

    /// Offset of a descriptor in the memory.
    fn descriptor(&self, ring: u32, at: u32) -> usize {
        let base = u64::from(self.register(ring)) | u64::from(self.register(ring + 4)) << 32;
        let offset = self.memory.offset_of(base + 16 * u64::from(at), 16);
        offset.expect("a ring lies in the memory of the device")
    }

    fn next(&self, ring: u32, at: u32) -> u32 {
        (at + 1) % (self.register(ring + 8) / 16)
    }

    /// Receives a frame from the wire, and writes `status` and `len` to its descriptor.
    fn receive_as(&self, queue: u32, frame: &[u8], status: u32, len: u16) -> bool {
        let ring = self.ring(queue, false);
        let (head, tail) = (self.register(ring + 0x10), self.register(ring + 0x18));
        if head == tail {
            self.missed.set(self.missed.get() + 1);
            return false;
        }
        let at = self.descriptor(ring, head);
        let buffer = self.memory.word(at).load(Ordering::Acquire);
        let offset = self.memory.offset_of(buffer, frame.len());
        self.memory
            .write(offset.expect("a buffer of the device"), frame);
        // With a hash of type TCP over IPv4.
        self.memory
            .word(at)
            .store(1 | 0xfeed_u64 << 32, Ordering::Relaxed);
        let second = u64::from(status) | u64::from(len) << 32;
        self.memory.word(at + 8).store(second, Ordering::Release);
        self.set(ring + 0x10, self.next(ring, head));
        true
    }

    fn receive(&self, queue: u32, frame: &[u8]) -> bool {
        self.receive_as(queue, frame, DONE | END, frame.len() as u16)
    }

    /// Sends at most `max` frames of a ring.
    fn send(&self, queue: u32, max: usize) -> Vec<Vec<u8>> {
        let ring = self.ring(queue, true);
        let mut frames = Vec::new();
        while frames.len() < max {
            let (head, tail) = (self.register(ring + 0x10), self.register(ring + 0x18));
            if head == tail {
                break;
            }
            let at = self.descriptor(ring, head);
            let second = self.memory.word(at + 8).load(Ordering::Acquire);
            let low = second as u32;
            assert_eq!(low >> 24 & 0b1011, 0b1011, "whole, with FCS, reported");
            let len = low as u16;
            let is_advanced = low & (1 << 29 | 3 << 20) == (1 << 29 | 3 << 20);
            assert_eq!(is_advanced, self.model != Model::E1000e);
            if is_advanced {
                assert_eq!((second >> 46) as u16, len);
            }
            let buffer = self.memory.word(at).load(Ordering::Acquire);
            let mut frame = vec![0; len.into()];
            let offset = self.memory.offset_of(buffer, frame.len());
            self.memory
                .read(offset.expect("a buffer of the device"), &mut frame);
            frames.push(frame);
            self.memory
                .word(at + 8)
                .store(second | 1 << 32, Ordering::Release);
            self.set(ring + 0x10, self.next(ring, head));
        }
        frames
    }

    /// Writes random words into all descriptors of a ring.
    fn scribble(&self, ring: u32, mut word: impl FnMut() -> u64) {
        for at in 0..self.register(ring + 8) / 16 {
            let at = self.descriptor(ring, at);
            self.memory.word(at).store(word(), Ordering::Relaxed);
            self.memory.word(at + 8).store(word(), Ordering::Relaxed);
        }
    }
}

const DONE: u32 = 1 << 0;
const END: u32 = 1 << 1;
const MODELS: [Model; 3] = [Model::E1000e, Model::Igb, Model::Ixgbe];
const RING: u16 = 64;

fn settings(queues: usize) -> Settings {
    Settings {
        frame_bytes: 1518,
        buffer_bytes: 2048,
        ring: RING,
        queues,
        is_promiscuous: true,
    }
}

fn open(model: Model, queues: usize) -> (Rc<Device>, Intel<Wire>) {
    let settings = settings(queues);
    let memory = DmaMemory::counted_from(0x4000_0000, memory_bytes(&settings)).unwrap();
    let device = Rc::new(Device {
        model,
        registers: RefCell::default(),
        log: RefCell::default(),
        memory: memory.again(),
        missed: Cell::new(0),
        is_dead: Cell::new(false),
    });
    let driver = Intel::start(model, Wire(Rc::clone(&device)), memory, &settings).unwrap();
    (device, driver)
}

/// Receives all frames that wait in a queue.
fn frames(driver: &mut Intel<Wire>, queue: usize, counts: &mut Counts) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    driver.receive(queue, usize::MAX, counts, |received| {
        let mut frame = vec![0; received.len()];
        received.copy_to(&mut frame);
        assert_eq!(received.hash(), Some(0xfeed));
        all.push(frame);
        true
    });
    all
}

fn frame(number: usize) -> Vec<u8> {
    vec![number as u8; 60 + number * 37 % 1400]
}

#[test]
fn frames_cross_in_both_directions_around_the_rings() {
    for model in MODELS {
        let (device, mut driver) = open(model, 1);
        assert_eq!(driver.mac(), [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        assert!(driver.link().is_up);
        let mut counts = Counts::default();
        for round in 0..20 {
            let some: Vec<_> = (0..17).map(|n| frame(17 * round + n)).collect();
            assert!(some.iter().all(|frame| device.receive(0, frame)));
            assert_eq!(frames(&mut driver, 0, &mut counts), some, "{model:?}");
            assert!(driver.room(0) >= 17);
            some.iter().for_each(|frame| driver.put(0, frame));
            assert_eq!(device.send(0, 99), Vec::<Vec<u8>>::new(), "not flushed");
            driver.flush(0);
            assert_eq!(device.send(0, 99), some, "{model:?}");
        }
        driver.put(0, &[7; 20]);
        driver.flush(0);
        let padded = [vec![7; 20], vec![0; 40]].concat();
        assert_eq!(device.send(0, 99), [padded]);
        assert_eq!(counts, Counts::default());
    }
}

#[test]
fn full_rings_miss_frames_and_go_on() {
    for model in MODELS {
        let (device, mut driver) = open(model, 1);
        let mut counts = Counts::default();
        let came = (0..100).filter(|n| device.receive(0, &frame(*n))).count();
        assert_eq!(came, usize::from(RING) - 1);
        assert_eq!(frames(&mut driver, 0, &mut counts).len(), came);
        driver.count(&mut counts);
        assert_eq!(counts.missed, 100 - came as u64, "{model:?}");
        assert!(device.receive(0, &frame(1)));
        assert_eq!(frames(&mut driver, 0, &mut counts), [frame(1)]);

        assert_eq!(driver.room(0), usize::from(RING) - 1);
        (0..driver.room(0)).for_each(|n| driver.put(0, &frame(n)));
        driver.flush(0);
        assert_eq!(driver.room(0), 0);
        assert_eq!(device.send(0, 5).len(), 5);
        assert_eq!(driver.room(0), 5);
    }
}

#[test]
fn taker_that_has_enough_leaves_the_rest() {
    let (device, mut driver) = open(Model::E1000e, 1);
    let mut counts = Counts::default();
    (0..5).for_each(|n| assert!(device.receive(0, &frame(n))));
    let mut taken = 0;
    driver.receive(0, 99, &mut counts, |_| {
        taken += 1;
        taken < 2
    });
    assert_eq!(taken, 2);
    driver.receive(0, 1, &mut counts, |received| {
        received.len() == frame(2).len()
    });
    assert_eq!(frames(&mut driver, 0, &mut counts), [frame(3), frame(4)]);
}

#[test]
fn descriptors_that_lie_are_counted_and_dropped() {
    for model in MODELS {
        let (device, mut driver) = open(model, 1);
        let mut counts = Counts::default();
        let errors = model.receive_errors();
        assert!(device.receive_as(0, &[1; 60], DONE | END, 2049));
        assert!(device.receive_as(0, &[2; 60], DONE | END, u16::MAX));
        assert!(device.receive_as(0, &[3; 60], DONE | END | errors, 60));
        // A frame that spans three buffers.
        for status in [DONE, DONE, DONE | END] {
            assert!(device.receive_as(0, &[4; 60], status, 2048));
        }
        assert!(device.receive(0, &[5; 60]));
        assert_eq!(frames(&mut driver, 0, &mut counts), [[5; 60]], "{model:?}");
        let expected = Counts {
            missed: 0,
            receive_errors: 1,
            too_long: 1,
            bad_descriptors: 2,
        };
        assert_eq!(counts, expected, "{model:?}");
    }
}

#[test]
fn device_that_scribbles_is_bounded_and_survived() {
    for model in MODELS {
        let (device, mut driver) = open(model, 1);
        let mut counts = Counts::default();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..200 {
            device.scribble(device.ring(0, false), &mut random);
            device.scribble(device.ring(0, true), &mut random);
            let mut seen = 0;
            driver.receive(0, usize::MAX, &mut counts, |received| {
                seen += 1;
                assert!(received.len() <= 2048);
                received.copy_to(&mut vec![0; received.len()]);
                true
            });
            assert!(seen <= usize::from(RING), "{seen} in one visit");
            let room = driver.room(0);
            assert!(room < usize::from(RING), "{room}");
            (0..room.min(3)).for_each(|n| driver.put(0, &frame(n)));
            driver.flush(0);
        }
        assert!(counts.bad_descriptors > 0 && counts.too_long > 0);
        driver.reset().unwrap();
        assert!(device.receive(0, &frame(3)));
        assert_eq!(frames(&mut driver, 0, &mut Counts::default()), [frame(3)]);
    }
}

#[test]
fn reset_tells_what_was_lost_and_starts_anew() {
    for model in MODELS {
        let (device, mut driver) = open(model, 1);
        (0..9).for_each(|n| driver.put(0, &frame(n)));
        driver.flush(0);
        assert_eq!(device.send(0, 4).len(), 4);
        driver.room(0);
        assert!(driver.is_running());
        // Another program resets the device.
        Wire(Rc::clone(&device)).write(CTRL, RESET);
        assert!(!driver.is_running());
        assert_eq!(driver.reset().unwrap(), 5);
        assert!(driver.is_running());
        driver.put(0, &frame(1));
        driver.flush(0);
        assert_eq!(device.send(0, 99), [frame(1)]);
        assert!(device.receive(0, &frame(2)));
        assert_eq!(frames(&mut driver, 0, &mut Counts::default()), [frame(2)]);
        device.is_dead.set(true);
        assert!(matches!(driver.reset(), Err(NicError::Reset)), "{model:?}");
    }
}

#[test]
fn rings_are_placed_after_the_reset_and_given_buffers_last() {
    for model in MODELS {
        let (device, _driver) = open(model, 2);
        let log = device.log.borrow();
        let first = |wanted: &dyn Fn(u32, u32) -> bool| {
            let found = log.iter().position(|(at, value)| wanted(*at, *value));
            found.unwrap_or_else(|| panic!("{model:?}: it was not written"))
        };
        let reset = first(&|at, value| at == CTRL && value & RESET != 0);
        for queue in [0, 1] {
            let (receive, send) = (device.ring(queue, false), device.ring(queue, true));
            let length = u32::from(RING) * 16;
            let placed =
                [receive, send].map(|ring| first(&|at, value| (at, value) == (ring + 8, length)));
            let buffers = first(&|at, value| (at, value) == (receive + 0x18, u32::from(RING) - 1));
            assert!(
                placed.iter().all(|at| reset < *at && *at < buffers),
                "{model:?}"
            );
            if model != Model::E1000e {
                let enabled = first(&|at, value| at == receive + 0x28 && value & 1 << 25 != 0);
                assert!(placed[0] < enabled && enabled < buffers, "{model:?}");
            }
        }
        let interrupts = if model == Model::Ixgbe { 0x888 } else { 0xd8 };
        let silent = first(&|at, value| (at, value) == (interrupts, u32::MAX));
        assert!(silent < reset, "{model:?}");
        // Half of the table's entries select each queue.
        let entries = (0..32).map(|word| device.register(0x5c00 + 4 * word).to_le_bytes());
        let second = if model == Model::E1000e { 0x80 } else { 1 };
        let entries: Vec<u8> = entries.flatten().collect();
        assert_eq!(entries.iter().filter(|entry| **entry == second).count(), 64);
        assert_ne!(device.register(0x5818) & 7, 0, "{model:?}");
    }
}

#[test]
fn second_queue_has_rings_of_its_own() {
    for model in MODELS {
        let (device, mut driver) = open(model, 2);
        let mut counts = Counts::default();
        assert!(device.receive(1, &frame(1)));
        assert!(device.receive(0, &frame(0)));
        assert_eq!(frames(&mut driver, 1, &mut counts), [frame(1)]);
        assert_eq!(frames(&mut driver, 0, &mut counts), [frame(0)]);
        driver.put(1, &frame(7));
        driver.flush(0);
        driver.flush(1);
        assert_eq!(device.send(0, 9).len() + device.send(1, 9).len(), 1);
    }
}

#[test]
fn device_that_is_dead_is_refused() {
    let settings = settings(1);
    let memory = DmaMemory::counted_from(0, memory_bytes(&settings)).unwrap();
    let device = Rc::new(Device {
        model: Model::E1000e,
        registers: RefCell::default(),
        log: RefCell::default(),
        memory: memory.again(),
        missed: Cell::new(0),
        is_dead: Cell::new(true),
    });
    let opened = Intel::start(Model::E1000e, Wire(device), memory, &settings);
    assert!(matches!(opened, Err(NicError::Reset)));
}
