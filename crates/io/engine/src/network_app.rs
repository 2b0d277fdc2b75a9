//! A network of frames as an app of the engine.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use carina_frame_engine::Network;
use carina_sys::Interest;
use carina_time::Instant;

use crate::app::App;
use crate::link::Links;

/// Runs a network in the breath of an engine, which may also have apps of flows. The owner of the
/// other reference configures the network between two breaths, and then wakes this app.
pub struct NetworkApp {
    network: Rc<RefCell<Network>>,
    doorbell: OwnedFd,
}

impl NetworkApp {
    /// Creates the app for `network`.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(network: Rc<RefCell<Network>>) -> std::io::Result<NetworkApp> {
        let doorbell = network.borrow().doorbell().try_clone_to_owned()?;
        Ok(NetworkApp { network, doorbell })
    }
}

impl App for NetworkApp {
    fn name(&self) -> &str {
        "frames"
    }

    fn pull(&mut self, now: Instant, _links: &mut Links) -> bool {
        self.network.borrow_mut().breathe(now)
    }

    fn arm(&mut self, _now: Instant, _links: &mut Links) -> bool {
        self.network.borrow_mut().arm()
    }

    fn disarm(&mut self) {
        self.network.borrow_mut().disarm();
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.network.borrow().next_deadline()
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.doorbell.as_fd(), Interest::ReadEdge)]
    }
}
