//! Names that the system looks up: in threads, because a look-up may wait for a name server.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use carina_sys::EventFd;

/// The look-ups of host names that threads carry out now, and those that wait for a thread.
pub(crate) struct LookUps {
    sender: Sender<Found>,
    receiver: Receiver<Found>,
    /// Signalled when a look-up has a result: the service then calls [`LookUps::take`].
    pub wake: Arc<EventFd>,
    running: usize,
    waiting: VecDeque<(u32, String)>,
}

/// The result of looking up the addresses of a host name.
pub(crate) struct Found {
    /// The number that the caller gave the look-up.
    pub session: u32,
    pub addresses: io::Result<Vec<IpAddr>>,
}

impl LookUps {
    pub(crate) fn new() -> io::Result<LookUps> {
        let (sender, receiver) = channel();
        Ok(LookUps {
            sender,
            receiver,
            wake: Arc::new(EventFd::new()?),
            running: 0,
            waiting: VecDeque::new(),
        })
    }

    /// Starts to look up the addresses of `host`, or queues the look-up if all threads are busy.
    /// Returns at once; [`LookUps::take`] returns the result with the number `session`.
    pub(crate) fn start(&mut self, session: u32, host: &str) {
        self.waiting.push_back((session, host.to_owned()));
        self.start_waiting();
    }

    /// Removes and returns the results that have arrived; does not wait.
    pub(crate) fn take(&mut self) -> Vec<Found> {
        self.wake.drain();
        let found: Vec<Found> = self.receiver.try_iter().collect();
        self.running -= found.len();
        self.start_waiting();
        found
    }

    /// Removes the waiting look-up of a session whose client has disconnected. A look-up that a
    /// thread has started continues.
    pub(crate) fn forget(&mut self, session: u32) {
        self.waiting.retain(|(waiting, _)| *waiting != session);
    }

    fn start_waiting(&mut self) {
        while self.running < THREADS_MAX
            && let Some((session, host)) = self.waiting.pop_front()
        {
            self.running += 1;
            let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
            let look_up = move || {
                let addresses = (host.as_str(), 1).to_socket_addrs();
                let addresses = addresses.map(|found| found.map(|one| one.ip()).collect());
                let found = Found { session, addresses };
                // The proxy may have ended.
                if sender.send(found).is_ok() {
                    wake.signal();
                }
            };
            let thread = std::thread::Builder::new().name("look-up".to_owned());
            if let Err(error) = thread.spawn(look_up) {
                let addresses = Err(error);
                let _ = self.sender.send(Found { session, addresses });
                self.wake.signal();
            }
        }
    }
}

/// Largest number of look-ups that run at a time, each in a thread.
const THREADS_MAX: usize = 16;
