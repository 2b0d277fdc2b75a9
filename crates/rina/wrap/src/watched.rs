//! Which sockets a program has put into an epoll, with the events that it asked for: the last
//! request for each socket, in a table that no thread ever waits for.
//!
//! A child of `fork` has a copy of the table from the moment of the fork. Another thread of the
//! parent may have been writing then, and does not exist in the child. So nothing waits for the end
//! of a write:
//!
//! ```text
//!  write:  take the next number of the slot -> values into its cell -> check value
//!  take:   the cell of the last number, only if its check value fits the number and the values
//! ```
//!
//! A write that never ends hides one request, until the next one for a socket of the same slot.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// A descriptor number and the events for which an epoll watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Watched {
    /// The descriptor number of the epoll.
    pub epoll: RawFd,
    /// The descriptor number of the socket.
    pub socket: RawFd,
    /// The events that the program waits for, as in `epoll_ctl(2)`.
    pub events: u32,
    /// The value that the program gets with each event.
    pub data: u64,
}

/// The last request for each socket. Requests for sockets whose numbers are 1,024 apart replace one
/// another: a program has few sockets at a time that it watches and has not connected yet.
#[derive(Debug)]
pub struct WatchedSockets([Slot; SLOTS]);

impl WatchedSockets {
    /// Makes an empty table.
    #[must_use]
    pub const fn new() -> WatchedSockets {
        WatchedSockets([const { Slot::new() }; SLOTS])
    }

    /// Remembers the last request for a socket. Costs no system call and never waits.
    pub fn note(&self, watched: Watched) {
        if let Some(slot) = self.slot(watched.socket) {
            let number = slot.begin();
            slot.finish(number, watched);
        }
    }

    /// Returns the last request for a socket, and forgets it. `None` also if a writer is at work on
    /// the slot at this moment.
    pub fn take(&self, socket: RawFd) -> Option<Watched> {
        self.slot(socket)?.take(socket)
    }

    fn slot(&self, socket: RawFd) -> Option<&Slot> {
        let number = usize::try_from(socket).ok()?;
        Some(&self.0[number % SLOTS])
    }
}

impl Default for WatchedSockets {
    fn default() -> WatchedSockets {
        WatchedSockets::new()
    }
}

/// The sockets whose numbers have the same remainder.
#[derive(Debug)]
struct Slot {
    /// Number of the last write; 0 before the first.
    last: AtomicU64,
    /// Each write uses the cell after that of the write before.
    cells: [Cell; CELLS],
}

#[derive(Debug)]
struct Cell {
    epoll: AtomicI32,
    socket: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
    /// [`check_value`] of the write that has ended last.
    check: AtomicU64,
}

impl Cell {
    const fn new() -> Cell {
        Cell {
            epoll: AtomicI32::new(-1),
            socket: AtomicI32::new(-1),
            events: AtomicU32::new(0),
            data: AtomicU64::new(0),
            check: AtomicU64::new(0),
        }
    }
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            last: AtomicU64::new(0),
            cells: [const { Cell::new() }; CELLS],
        }
    }

    /// Begins a write, and returns its number.
    fn begin(&self) -> u64 {
        self.last.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Writes the values of the write with this number, and ends it.
    fn finish(&self, number: u64, watched: Watched) {
        let cell = self.cell(number);
        cell.epoll.store(watched.epoll, Ordering::Relaxed);
        cell.socket.store(watched.socket, Ordering::Relaxed);
        cell.events.store(watched.events, Ordering::Relaxed);
        cell.data.store(watched.data, Ordering::Relaxed);
        let check = check_value(number, watched);
        cell.check.store(check, Ordering::Release);
    }

    fn take(&self, socket: RawFd) -> Option<Watched> {
        let number = self.last.load(Ordering::Acquire);
        let cell = self.cell(number);
        let check = cell.check.load(Ordering::Acquire);
        // Values of different writes may be mixed here. The check value then fits none of them.
        let watched = Watched {
            epoll: cell.epoll.load(Ordering::Relaxed),
            socket: cell.socket.load(Ordering::Relaxed),
            events: cell.events.load(Ordering::Relaxed),
            data: cell.data.load(Ordering::Relaxed),
        };
        if number == 0 || watched.socket != socket || check != check_value(number, watched) {
            return None;
        }
        // No cell fits the next number, so that no other thread takes the same request.
        let (now, next) = (Ordering::AcqRel, Ordering::Relaxed);
        let taken = self.last.compare_exchange(number, number + 1, now, next);
        taken.ok().map(|_| watched)
    }

    fn cell(&self, number: u64) -> &Cell {
        &self.cells[number as usize % CELLS]
    }
}

/// A number by which a complete write is recognized.
fn check_value(number: u64, watched: Watched) -> u64 {
    let mut hasher = DefaultHasher::new();
    (number, watched).hash(&mut hasher);
    hasher.finish()
}

/// Number of slots.
const SLOTS: usize = 1024;

/// Number of writes to one slot that may be under way at once without disturbing one another.
const CELLS: usize = 4;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn watched(socket: RawFd, data: u64) -> Watched {
        Watched {
            epoll: 3,
            socket,
            events: data as u32,
            data,
        }
    }

    #[test]
    fn last_request_is_taken_once() {
        let table = WatchedSockets::new();
        assert_eq!(table.take(5), None);
        table.note(watched(5, 1));
        table.note(watched(5, 2));
        table.note(watched(6, 3));
        assert_eq!(table.take(5), Some(watched(5, 2)));
        assert_eq!(table.take(5), None);
        assert_eq!(table.take(6), Some(watched(6, 3)));
        table.note(watched(5, 4));
        assert_eq!(table.take(5), Some(watched(5, 4)));
    }

    #[test]
    fn socket_of_the_same_slot_is_not_taken_for_another() {
        let table = WatchedSockets::new();
        table.note(watched(5, 1));
        assert_eq!(table.take(5 + SLOTS as RawFd), None);
        assert_eq!(table.take(5), Some(watched(5, 1)));
        table.note(watched(-1, 1));
        assert_eq!(table.take(-1), None);
    }

    /// As in a child that was forked while another thread of its parent was writing.
    #[test]
    fn write_that_never_ends_stops_no_other() {
        let table = WatchedSockets::new();
        table.note(watched(5, 1));
        let slot = table.slot(5).unwrap();
        for data in 0..3 * CELLS as u64 {
            slot.begin();
            assert_eq!(table.take(5), None, "nothing half written");
            table.note(watched(5, data));
            assert_eq!(table.take(5), Some(watched(5, data)));
        }
    }

    #[test]
    fn values_of_two_writers_are_never_mixed() {
        let (table, is_over) = (WatchedSockets::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for writer in 1..3 {
                let (table, is_over) = (&table, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        table.note(watched(writer, u64::from(writer.unsigned_abs()) * 7));
                        table.note(watched(writer + SLOTS as RawFd, 11));
                    }
                });
            }
            let (mut taken, start) = (0, std::time::Instant::now());
            while taken < 100 && start.elapsed().as_secs() < 60 {
                for socket in [1, 2, 1 + SLOTS as RawFd, 2 + SLOTS as RawFd] {
                    let expected = if socket < 3 { socket as u64 * 7 } else { 11 };
                    let found = table.take(socket);
                    taken += usize::from(found.is_some());
                    assert!(found.is_none_or(|found| found == watched(socket, expected)));
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(taken > 0);
        });
    }
}
