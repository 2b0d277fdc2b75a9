//! The medium through which an Ethernet shim sends and receives frames.

use std::os::fd::BorrowedFd;

use carina_engine::Links;
use carina_time::Instant;
use carina_wire::ether::Mac;

use super::port::Port;
use super::received::Received;
use super::socket::Socket;
use crate::error::ShimError;

/// An interface of the kernel, or a port of a graph.
pub(super) enum Medium {
    Socket(Box<Socket>),
    Port(Box<Port>),
}

impl Medium {
    pub(super) fn mac(&self) -> Mac {
        match self {
            Medium::Socket(socket) => socket.mac(),
            Medium::Port(port) => port.mac(),
        }
    }

    /// Longest payload of a frame in bytes.
    pub(super) fn mtu(&self) -> usize {
        match self {
            Medium::Socket(socket) => socket.mtu(),
            Medium::Port(port) => port.mtu(),
        }
    }

    /// Whether frames could be sent when the interface was last checked.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn link(&self) -> Result<(), ShimError> {
        match self {
            Medium::Socket(socket) => socket.link(),
            Medium::Port(port) => port.link(),
        }
    }

    /// Whether the interface has changed since it was last checked.
    pub(super) fn has_changed(&self) -> bool {
        match self {
            Medium::Socket(socket) => socket.has_changed(),
            Medium::Port(port) => port.has_changed(),
        }
    }

    /// Checks whether frames can be sent.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn check_interface(&mut self) -> Result<(), ShimError> {
        match self {
            Medium::Socket(socket) => socket.check_interface(),
            Medium::Port(port) => port.check_interface(),
        }
    }

    /// Moves frames between the shim and the graph of its port. Returns whether any moved.
    pub(super) fn breathe(&mut self, now: Instant, links: &mut Links) -> bool {
        match self {
            Medium::Socket(_) => false,
            Medium::Port(port) => port.breathe(now, links),
        }
    }

    pub(super) fn receive(&mut self) -> Option<Received> {
        match self {
            Medium::Socket(socket) => socket.receive(),
            Medium::Port(port) => port.receive(),
        }
    }

    /// Releases the memory of received frames.
    pub(super) fn release(&mut self) {
        match self {
            Medium::Socket(socket) => socket.release(),
            Medium::Port(_) => {}
        }
    }

    pub(super) fn has_frame(&self) -> bool {
        match self {
            Medium::Socket(socket) => socket.has_frame(),
            Medium::Port(port) => port.has_frame(),
        }
    }

    /// Number of frames that can be sent before the next flush.
    pub(super) fn free_frames(&mut self) -> usize {
        match self {
            Medium::Socket(socket) => socket.free_frames(),
            Medium::Port(port) => port.free_frames(),
        }
    }

    /// Reserves a slot for a frame of `bytes`, to be filled and committed. `None` if no slot is
    /// free, or if `bytes` exceeds the slot.
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        match self {
            Medium::Socket(socket) => socket.reserve(bytes),
            Medium::Port(port) => port.reserve(bytes),
        }
    }

    pub(super) fn commit(&mut self, bytes: usize) {
        match self {
            Medium::Socket(socket) => socket.commit(bytes),
            Medium::Port(port) => port.commit(),
        }
    }

    /// Hands committed frames to the medium. `Some(false)` means: call it again later. `None` means
    /// that the medium is down.
    pub(super) fn flush(&mut self, now: Instant, links: &mut Links) -> Option<bool> {
        match self {
            Medium::Socket(socket) => socket.flush(),
            Medium::Port(port) => {
                port.breathe(now, links);
                Some(true)
            }
        }
    }

    /// Frames lost since the last call because there was no memory for them.
    pub(super) fn take_missed(&mut self) -> u64 {
        match self {
            Medium::Socket(socket) => socket.take_missed(),
            Medium::Port(port) => port.take_missed(),
        }
    }

    /// Arms the wake-up. Returns false when there is something to do already.
    pub(super) fn arm(&mut self, now: Instant, links: &mut Links) -> bool {
        match self {
            Medium::Socket(_) => true,
            Medium::Port(port) => port.arm(now, links),
        }
    }

    pub(super) fn disarm(&mut self) {
        match self {
            Medium::Socket(_) => {}
            Medium::Port(port) => port.disarm(),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Medium::Socket(_) => None,
            Medium::Port(port) => port.next_deadline(),
        }
    }

    /// Descriptors that become readable when a frame arrives or an interface changes.
    pub(super) fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Medium::Socket(socket) => socket.wait_fds().to_vec(),
            Medium::Port(port) => port.wait_fds(),
        }
    }
}
