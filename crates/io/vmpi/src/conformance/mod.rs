//! The conformance suite of VMPI: the cases that every VMPI device passes.
//!
//! A device supplies a [`Fixture`], which opens the two sides of one link, and runs every case by
//! the macro [`vmpi_conformance`](crate::vmpi_conformance). The cases use only [`VmpiImpl`] and
//! [`crate::hl`], so that all devices are judged by the same rules. A case panics with the reason
//! when the device breaks a rule. No case measures time: [`PATIENCE`] only ends a case that hangs.

mod channels;
mod hostile;
mod node;
mod records;
mod restart;
mod wake_up;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use carina_sys::{Mapping, PAGE_BYTES, monotonic_ns};

use crate::hl::Side;
use crate::ll::{LinkState, VmpiImpl};

pub use channels::{
    channels_share_the_link_fairly, closed_channels_open_again_without_old_data,
    sdus_of_all_sizes_keep_their_order_on_every_channel, stopped_reader_stops_its_channel_only,
};
pub use hostile::{damaged_memory_ends_the_link_and_not_the_node, lies_in_records_end_the_link};
pub use records::{
    counters_count_what_happened, records_of_all_lengths_keep_their_order,
    stopped_reader_holds_the_writer_back_and_loses_nothing,
};
pub use restart::{
    failed_link_is_held_off_and_comes_back, killed_peer_is_noticed,
    peer_that_ends_or_is_killed_comes_back_without_old_records,
};
pub use wake_up::{released_space_wakes_the_writer, sleeper_misses_no_record};

/// A side of a link, as the data plane owns it.
pub type Device = Box<dyn VmpiImpl + Send>;

/// After this time a case that makes no progress fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One link between a host and a guest, whose sides the suite opens and ends.
pub trait Fixture {
    /// Opens a side. The suite has dropped or killed the device that it opened before for this
    /// side.
    fn open(&mut self, side: Side) -> Device;

    /// Ends a side as `kill -9` of its node does: no destructor runs. A device whose descriptors
    /// must be closed for the next one to open overrides the default, which leaks the device.
    fn kill(&mut self, device: Device) {
        std::mem::forget(device);
    }

    /// Does the work of the control threads of both nodes. The suite calls it at every look.
    fn serve(&mut self) {}

    /// Whether each side wakes the other by its descriptor on the first link of the fixture.
    /// Otherwise both sides poll.
    fn has_wake_ups(&self) -> bool;

    /// Overwrites memory that a hostile node at `side` can write, with values of `random`. Returns
    /// false if the device shares no memory with its peer.
    fn damage(&mut self, _side: Side, _random: &mut Random) -> bool {
        false
    }
}

/// Defines one test for each case of the suite. The first argument is an expression that is called
/// without arguments and returns a new [`Fixture`](crate::conformance::Fixture). Each test has the
/// attribute of the second argument, such as `ignore`, if there is one.
#[macro_export]
macro_rules! vmpi_conformance {
    ($make:expr $(, $attribute:meta)?) => {
        $crate::vmpi_conformance! { $make, [$($attribute)?] =>
            records_of_all_lengths_keep_their_order
            stopped_reader_holds_the_writer_back_and_loses_nothing
            counters_count_what_happened
            sleeper_misses_no_record
            released_space_wakes_the_writer
            peer_that_ends_or_is_killed_comes_back_without_old_records
            killed_peer_is_noticed
            failed_link_is_held_off_and_comes_back
            sdus_of_all_sizes_keep_their_order_on_every_channel
            stopped_reader_stops_its_channel_only
            channels_share_the_link_fairly
            closed_channels_open_again_without_old_data
            lies_in_records_end_the_link
            damaged_memory_ends_the_link_and_not_the_node
        }
    };
    ($make:expr, [] => $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$case($make);
            }
        )*
    };
    ($make:expr, [$attribute:meta] => $($case:ident)*) => {
        $(
            #[test]
            #[$attribute]
            fn $case() {
                $crate::conformance::$case($make);
            }
        )*
    };
}

/// A sequence of pseudorandom numbers (xorshift64), the same for the same seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() >> 16) as usize % end
    }
}

/// Overwrites words of a shared region, of its rings alone, or a few words anywhere. `bytes` is the
/// size of the region. For [`Fixture::damage`].
///
/// # Panics
/// The region cannot be mapped.
pub fn scribble(memory: impl AsFd, bytes: usize, random: &mut Random) {
    let map = Mapping::shared(memory.as_fd(), 0, bytes).expect("the region can be mapped");
    let kind = random.below(3);
    let (from, words) = match kind {
        0 => (0, bytes / 8),
        1 => (PAGE_BYTES, (bytes - PAGE_BYTES) / 8),
        _ => (0, 1 << random.below(10)),
    };
    for n in 0..words {
        let word = if kind == 2 {
            random.below(bytes / 8)
        } else {
            n
        };
        map.write(from + 8 * word, &random.draw().to_le_bytes());
    }
}

/// Ends a case that makes no progress.
struct Deadline(Instant);

impl Deadline {
    fn new() -> Deadline {
        Deadline(Instant::now())
    }

    fn check(&self, what: &str) {
        assert!(self.0.elapsed() < PATIENCE, "no progress: {what}");
    }
}

/// Both sides of a link, looked at by one thread. A side that was killed is `None`.
struct Sides<F> {
    fixture: F,
    host: Option<Device>,
    guest: Option<Device>,
    /// How far the clock of the sides is ahead of the system's clock, in ns.
    ahead_ns: u64,
}

impl<F: Fixture> Sides<F> {
    fn new(mut fixture: F) -> Sides<F> {
        let host = Some(fixture.open(Side::Host));
        let guest = Some(fixture.open(Side::Guest));
        Sides {
            fixture,
            host,
            guest,
            ahead_ns: 0,
        }
    }

    /// Opens both sides and waits until the link is up.
    fn up(fixture: F) -> Sides<F> {
        let mut sides = Sides::new(fixture);
        sides.wait_up();
        sides
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns() + self.ahead_ns
    }

    fn place(&mut self, side: Side) -> &mut Option<Device> {
        match side {
            Side::Host => &mut self.host,
            Side::Guest => &mut self.guest,
        }
    }

    fn device(&mut self, side: Side) -> &mut Device {
        self.place(side).as_mut().expect("the side is open")
    }

    /// Lets both sides look once. The clock of the sides moves by at least a millisecond, so that
    /// hold-offs end soon.
    fn look(&mut self) -> [Option<LinkState>; 2] {
        self.fixture.serve();
        self.ahead_ns += 1_000_000;
        let now_ns = self.now_ns();
        let look = |device: &mut Option<Device>| device.as_mut().map(|d| d.link(now_ns));
        let states = [look(&mut self.host), look(&mut self.guest)];
        std::thread::sleep(Duration::from_micros(50));
        states
    }

    fn wait_up(&mut self) {
        let deadline = Deadline::new();
        while !self
            .look()
            .iter()
            .all(|state| *state == Some(LinkState::Up))
        {
            deadline.check("the link does not come up");
        }
    }

    /// Waits until `side` reports that the link is down.
    fn wait_down(&mut self, side: Side) -> crate::ll::DownReason {
        let deadline = Deadline::new();
        loop {
            let [host, guest] = self.look();
            let state = if side == Side::Host { host } else { guest };
            if let Some(LinkState::Down(reason)) = state {
                return reason;
            }
            deadline.check("the link does not go down");
        }
    }

    /// Looks at least once, and returns the state of `side`.
    fn wait_down_or_up(&mut self, side: Side) -> Option<LinkState> {
        let [host, guest] = self.look();
        if side == Side::Host { host } else { guest }
    }

    /// Ends a side, by its destructor or as if its process was killed.
    fn end(&mut self, side: Side, is_killed: bool) {
        let device = self.place(side).take().expect("the side is open");
        if is_killed {
            self.fixture.kill(device);
        }
    }

    /// Opens a side again that was ended.
    fn reopen(&mut self, side: Side) {
        let device = self.fixture.open(side);
        *self.place(side) = Some(device);
    }

    /// Sends one record from each side to the other and waits for both.
    fn exchange(&mut self, text: &[u8]) {
        for side in [Side::Host, Side::Guest] {
            assert!(send(self.device(side), text), "an idle link has room");
            let deadline = Deadline::new();
            loop {
                if let Some(bytes) = receive(self.device(side.peer())) {
                    assert_eq!(bytes, text);
                    break;
                }
                let _ = self.look();
                deadline.check("the record does not arrive");
            }
        }
    }
}

/// Writes and publishes a record; false if the ring is full.
fn send(device: &mut Device, bytes: &[u8]) -> bool {
    let is_written = put(device, bytes);
    device.publish();
    is_written
}

/// Writes a record without publishing it; false if the ring is full.
fn put(device: &mut Device, bytes: &[u8]) -> bool {
    match device.reserve(bytes.len()) {
        Ok(mut slot) => {
            slot.write_at(0, bytes);
            slot.commit(false);
            true
        }
        Err(carina_ring::Refused::Full) => false,
        Err(error) => panic!("a record of {} bytes: {error}", bytes.len()),
    }
}

/// Takes the next record and returns its room to the sender.
fn receive(device: &mut Device) -> Option<Vec<u8>> {
    let lease = device.next().expect("the peer keeps the rules")?;
    let bytes = lease.to_vec();
    device.release();
    Some(bytes)
}
