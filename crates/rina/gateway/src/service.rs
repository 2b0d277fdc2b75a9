//! The interface of a gateway's services, and their use of the gateway's epoll set.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use carina_sys::{Epoll, Interest};

use crate::error::GatewayError;

/// A service of a gateway, which the gateway's event loop calls.
pub(crate) trait Service {
    /// Handles the event that the descriptor which the service added as `item` is ready.
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError>;

    /// Handles deadlines up to `now`. The event loop calls it when the time of
    /// [`Service::deadline`] has come.
    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError>;

    /// Returns when [`Service::handle_due`] must be called although no descriptor is ready; `None`
    /// for never.
    fn deadline(&self) -> Option<Instant>;
}

/// Access of one service to the epoll set of its gateway.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    epoll: Rc<Epoll>,
    service: u32,
}

impl Watch {
    /// Makes the access for the service with number `service`.
    pub(crate) fn new(epoll: Rc<Epoll>, service: u32) -> Watch {
        Watch { epoll, service }
    }

    /// Adds a descriptor to the epoll set under the number `item`, which the service chooses.
    pub(crate) fn add(&self, fd: impl AsFd, item: u32, interest: Interest) -> std::io::Result<()> {
        let token = u64::from(self.service) << 32 | u64::from(item);
        self.epoll.add(fd, token, interest)
    }

    /// Reports a descriptor of [`Interest::ReadWriteEdge`] once more, if it is ready.
    pub(crate) fn report_again(&self, fd: impl AsFd, item: u32) -> std::io::Result<()> {
        let token = u64::from(self.service) << 32 | u64::from(item);
        self.epoll.modify(fd, token, Interest::ReadWriteEdge)
    }

    /// Removes a descriptor from the epoll set; does nothing if it is not there.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = self.epoll.del(fd);
    }
}
