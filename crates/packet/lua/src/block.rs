//! The memory that an app and its script share. It describes the waiting packets, the addresses of
//! their bytes, and what the script did with them.
//!
//! `prelude.lua` has the same layout, and is the only Lua code that accesses this memory. Rust
//! never dereferences an address in it, and checks every number that it reads from it.

use std::cell::Cell;

use carina_frame::Frame;

/// Number of places for packets: the first half for received packets, the second for new ones.
pub(crate) const PLACES: usize = 1024;
/// The first place for new packets.
pub(crate) const MADE: usize = PLACES / 2;
/// Largest number of inputs of an app, and most outputs.
pub(crate) const PORTS_MAX: usize = 64;
/// Largest number of counters of an app.
pub(crate) const COUNTERS_MAX: usize = 64;

/// The shared memory. Lua code may change any field while it runs.
#[repr(C)]
pub(crate) struct Block {
    pub(crate) now: Cell<f64>,
    pub(crate) base: Cell<f64>,
    pub(crate) inputs: Cell<u32>,
    pub(crate) outputs: Cell<u32>,
    pub(crate) counters: Cell<u32>,
    pub(crate) is_counted: Cell<u32>,
    pub(crate) sent: Cell<u32>,
    pub(crate) made: Cell<u32>,
    pub(crate) ready: Cell<u32>,
    pad: Cell<u32>,
    pub(crate) first: [Cell<u32>; PORTS_MAX],
    pub(crate) waiting: [Cell<u32>; PORTS_MAX],
    pub(crate) taken: [Cell<u32>; PORTS_MAX],
    pub(crate) room: [Cell<i32>; PORTS_MAX],
    pub(crate) counter: [Cell<f64>; COUNTERS_MAX],
    handle: [Cell<f64>; PLACES],
    data: [Cell<*mut u8>; PLACES],
    length: [Cell<u32>; PLACES],
    headroom: [Cell<u32>; PLACES],
    tailroom: [Cell<u32>; PLACES],
    is_reshaped: [Cell<u32>; PLACES],
    sent_place: [Cell<u32>; PLACES],
    sent_to: [Cell<u32>; PLACES],
}

impl Block {
    pub(crate) fn new() -> Box<Block> {
        fn zeros<T: Default, const N: usize>() -> [Cell<T>; N] {
            std::array::from_fn(|_| Cell::default())
        }
        Box::new(Block {
            now: Cell::default(),
            base: Cell::default(),
            inputs: Cell::default(),
            outputs: Cell::default(),
            counters: Cell::default(),
            is_counted: Cell::default(),
            sent: Cell::default(),
            made: Cell::default(),
            ready: Cell::default(),
            pad: Cell::default(),
            first: zeros(),
            waiting: zeros(),
            taken: zeros(),
            room: zeros(),
            counter: zeros(),
            handle: std::array::from_fn(|_| Cell::new(NO_PACKET)),
            data: std::array::from_fn(|_| Cell::new(std::ptr::null_mut())),
            length: zeros(),
            headroom: zeros(),
            tailroom: zeros(),
            is_reshaped: zeros(),
            sent_place: zeros(),
            sent_to: zeros(),
        })
    }

    /// Begins a call of the script at time `now_s`, in seconds. Packets get numbers that no earlier
    /// call used.
    pub(crate) fn begin(&self, now_s: f64) {
        let next = self.base.get() + PLACES as f64;
        // Above 2^51, Lua's bit operations could no longer extract the place.
        self.base
            .set(if next < BASE_MAX { next } else { PLACES as f64 });
        self.now.set(now_s);
        self.sent.set(0);
    }

    /// Describes a frame at a place. A script can use it once [`Block::give`] has given it a
    /// number.
    pub(crate) fn describe(&self, place: usize, frame: &mut Frame) {
        self.data[place].set(frame.as_mut_ptr());
        self.length[place].set(frame.len() as u32);
        self.headroom[place].set(frame.headroom() as u32);
        self.tailroom[place].set(frame.tailroom() as u32);
        self.is_reshaped[place].set(0);
    }

    /// Gives the packet at a place its number.
    pub(crate) fn give(&self, place: usize) {
        self.handle[place].set(self.base.get() + place as f64);
    }

    /// Makes the number of the packet at a place invalid. Returns `true` if the script had neither
    /// sent nor freed the packet.
    pub(crate) fn take_back(&self, place: usize) -> bool {
        !self.handle[place].replace(NO_PACKET).is_nan()
    }

    /// Gives a frame the start and length that the script has given its packet. Returns `false` if
    /// these do not fit into the frame, which the prelude prevents.
    pub(crate) fn reshape(&self, place: usize, frame: &mut Frame) -> bool {
        self.is_reshaped[place].get() == 0
            || frame.reshape(
                self.headroom[place].get() as usize,
                self.length[place].get() as usize,
            )
    }

    /// The packets that the script sent, in order: the place of each, and its output.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (usize, usize)> {
        let count = (self.sent.get() as usize).min(PLACES);
        let pairs = self.sent_place[..count].iter().zip(&self.sent_to);
        pairs.map(|(place, output)| (place.get() as usize, output.get() as usize))
    }
}

/// The number at a place without packet. It is not equal to anything, not even to itself.
const NO_PACKET: f64 = f64::NAN;
const BASE_MAX: f64 = (1u64 << 50) as f64;
