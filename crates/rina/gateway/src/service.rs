//! What a service of a gateway is, and its part of the gateway's epoll set.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use carina_sys::{Epoll, Interest};

use crate::error::GatewayError;

/// A service of a gateway.
pub(crate) trait Service {
    /// A descriptor that the service has added as `item` is ready.
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError>;

    /// The time that [`Service::deadline`] gave has come, or an event of another service has.
    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError>;

    /// When the service has to do something that no descriptor announces.
    fn deadline(&self) -> Option<Instant>;
}

/// The descriptors of one service in the epoll set of its gateway.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    epoll: Rc<Epoll>,
    service: u32,
}

impl Watch {
    /// The descriptors of the service of that number.
    pub(crate) fn new(epoll: Rc<Epoll>, service: u32) -> Watch {
        Watch { epoll, service }
    }

    /// Adds a descriptor under a number of the service's own.
    pub(crate) fn add(&self, fd: impl AsFd, item: u32, interest: Interest) -> std::io::Result<()> {
        let token = u64::from(self.service) << 32 | u64::from(item);
        self.epoll.add(fd, token, interest)
    }

    /// Reports a descriptor of [`Interest::ReadWriteEdge`] once more, if it is ready.
    pub(crate) fn report_again(&self, fd: impl AsFd, item: u32) -> std::io::Result<()> {
        let token = u64::from(self.service) << 32 | u64::from(item);
        self.epoll.modify(fd, token, Interest::ReadWriteEdge)
    }

    /// Removes a descriptor, where it was added.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = self.epoll.del(fd);
    }
}
