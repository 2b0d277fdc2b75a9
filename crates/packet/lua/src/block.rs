//! The memory that an app shares with its script: which packets wait, where their bytes are, and
//! what the script did with them.
//!
//! `prelude.lua` has the same layout and is the only code of Lua that reaches it. Rust never
//! follows an address that stands here, and checks every number that it reads.

use std::cell::Cell;

use carina_frame::Frame;

/// Places for packets: the first half for those that are received, the other for new ones.
pub(crate) const PLACES: usize = 1024;
/// The first place of new packets.
pub(crate) const MADE: usize = PLACES / 2;
/// Inputs, and outputs, of an app.
pub(crate) const PORTS_MAX: usize = 64;
/// Counters of an app.
pub(crate) const COUNTERS_MAX: usize = 64;

/// The block. All of it may change while Lua runs.
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

    /// Begins a call of the script: packets of earlier ones have other numbers.
    pub(crate) fn begin(&self, now_s: f64) {
        let next = self.base.get() + PLACES as f64;
        // Beyond 2^51 Lua's bit operations no longer see the place.
        self.base
            .set(if next < BASE_MAX { next } else { PLACES as f64 });
        self.now.set(now_s);
        self.sent.set(0);
    }

    /// Shows a frame at a place; it becomes a packet that a script may touch when it has a number.
    pub(crate) fn describe(&self, place: usize, frame: &mut Frame) {
        self.data[place].set(frame.as_mut_ptr());
        self.length[place].set(frame.len() as u32);
        self.headroom[place].set(frame.headroom() as u32);
        self.tailroom[place].set(frame.tailroom() as u32);
        self.is_reshaped[place].set(0);
    }

    /// Numbers the packet at a place.
    pub(crate) fn give(&self, place: usize) {
        self.handle[place].set(self.base.get() + place as f64);
    }

    /// Takes the packet at a place back: its number is no packet's any more. True when the script
    /// had neither sent nor freed it.
    pub(crate) fn take_back(&self, place: usize) -> bool {
        !self.handle[place].replace(NO_PACKET).is_nan()
    }

    /// Gives a frame the length and start that the script gave the packet at its place. False when
    /// that is not possible, which the prelude does not let happen.
    pub(crate) fn reshape(&self, place: usize, frame: &mut Frame) -> bool {
        self.is_reshaped[place].get() == 0
            || frame.reshape(
                self.headroom[place].get() as usize,
                self.length[place].get() as usize,
            )
    }

    /// What the script sent, in order: the place of the packet and the output.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (usize, usize)> {
        let count = (self.sent.get() as usize).min(PLACES);
        let pairs = self.sent_place[..count].iter().zip(&self.sent_to);
        pairs.map(|(place, output)| (place.get() as usize, output.get() as usize))
    }
}

/// What stands at a place without a packet: it equals nothing, itself included.
const NO_PACKET: f64 = f64::NAN;
const BASE_MAX: f64 = (1u64 << 50) as f64;
