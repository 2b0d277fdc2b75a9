//! Looking host names up without waiting: each look-up has a thread, up to a limit.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use carina_sys::EventFd;

/// Looks names up for one door.
pub(super) struct Resolver {
    sender: Sender<Found>,
    found: Receiver<Found>,
    doorbell: Arc<EventFd>,
    running: usize,
}

/// The result of a look-up.
pub(super) struct Found {
    /// The number that was given with the name.
    pub number: u32,
    pub addresses: io::Result<Vec<SocketAddr>>,
}

impl Resolver {
    pub(super) fn new() -> io::Result<Resolver> {
        let (sender, found) = channel();
        Ok(Resolver {
            sender,
            found,
            doorbell: Arc::new(EventFd::new()?),
            running: 0,
        })
    }

    /// Whether another look-up may start.
    pub(super) fn has_room(&self) -> bool {
        self.running < LOOK_UPS_MAX
    }

    /// Starts a look-up; [`Resolver::take`] gives its result.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(super) fn start(&mut self, number: u32, host: &str, port: u16) -> io::Result<()> {
        let (sender, doorbell) = (self.sender.clone(), Arc::clone(&self.doorbell));
        let place = (host.to_owned(), port);
        let thread = std::thread::Builder::new().name("look-up".to_owned());
        thread.stack_size(STACK_BYTES).spawn(move || {
            let addresses = place.to_socket_addrs().map(Iterator::collect);
            // The door may have ended meanwhile.
            let _ = sender.send(Found { number, addresses });
            doorbell.signal();
        })?;
        self.running += 1;
        Ok(())
    }

    /// The next result, if there is one.
    pub(super) fn take(&mut self) -> Option<Found> {
        self.doorbell.drain();
        let found = self.found.try_recv().ok()?;
        self.running -= 1;
        Some(found)
    }
}

impl AsFd for Resolver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

/// Look-ups of a door at a time.
const LOOK_UPS_MAX: usize = 16;

/// The system's resolver and its modules need less.
const STACK_BYTES: usize = 256 << 10;
