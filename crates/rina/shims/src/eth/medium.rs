//! What an Ethernet shim sends and receives frames by.

use std::os::fd::BorrowedFd;

use carina_engine::{Links, Packet};
use carina_wire::ether::{Header, Mac};

use super::port::Port;
use super::socket::Socket;
use crate::error::ShimError;

/// An interface of the kernel, or a port of a graph.
pub(super) enum Medium {
    Socket(Box<Socket>),
    Port(Box<Port>),
}

/// A frame that came in, of the shim's VLAN and of a type that it knows.
pub(super) struct Received {
    pub header: Header,
    /// The payload, with the padding of a short frame.
    pub payload: Packet,
    /// The frame was longer than a place in the ring.
    pub is_cut: bool,
}

impl Medium {
    pub fn mac(&self) -> Mac {
        match self {
            Medium::Socket(socket) => socket.mac(),
            Medium::Port(port) => port.mac(),
        }
    }

    /// Longest payload of a frame in bytes.
    pub fn mtu(&self) -> usize {
        match self {
            Medium::Socket(socket) => socket.mtu(),
            Medium::Port(port) => port.mtu(),
        }
    }

    /// Whether frames could be sent at the last look.
    ///
    /// # Errors
    /// Why not.
    pub fn link(&self) -> Result<(), ShimError> {
        match self {
            Medium::Socket(socket) => socket.link(),
            Medium::Port(port) => port.link(),
        }
    }

    /// True when an interface has changed since the last look.
    pub fn has_changed(&self) -> bool {
        match self {
            Medium::Socket(socket) => socket.has_changed(),
            Medium::Port(port) => port.has_changed(),
        }
    }

    /// Looks whether frames can be sent.
    ///
    /// # Errors
    /// Why not.
    pub fn look(&mut self) -> Result<(), ShimError> {
        match self {
            Medium::Socket(socket) => socket.look(),
            Medium::Port(port) => port.look(),
        }
    }

    /// Moves frames that a graph has between here and its port. True when there were any.
    pub fn breathe(&mut self, now: u64, links: &mut Links) -> bool {
        match self {
            Medium::Socket(_) => false,
            Medium::Port(port) => port.breathe(now, links),
        }
    }

    pub fn receive(&mut self) -> Option<Received> {
        match self {
            Medium::Socket(socket) => socket.receive(),
            Medium::Port(port) => port.receive(),
        }
    }

    /// Gives back the memory of frames received.
    pub fn release(&mut self) {
        match self {
            Medium::Socket(socket) => socket.release(),
            Medium::Port(_) => {}
        }
    }

    pub fn has_frame(&self) -> bool {
        match self {
            Medium::Socket(socket) => socket.has_frame(),
            Medium::Port(port) => port.has_frame(),
        }
    }

    /// Frames that can be sent before the next flush.
    pub fn free_frames(&mut self) -> usize {
        match self {
            Medium::Socket(socket) => socket.free_frames(),
            Medium::Port(port) => port.free_frames(),
        }
    }

    /// A place for a frame of `bytes`, to be filled and then committed.
    pub fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        match self {
            Medium::Socket(socket) => socket.reserve(bytes),
            Medium::Port(port) => port.reserve(bytes),
        }
    }

    pub fn commit(&mut self, bytes: usize) {
        match self {
            Medium::Socket(socket) => socket.commit(bytes),
            Medium::Port(port) => port.commit(),
        }
    }

    /// Hands over what was committed. `Some(false)` asks for another call, `None` says that the
    /// medium takes nothing any more.
    pub fn flush(&mut self, now: u64, links: &mut Links) -> Option<bool> {
        match self {
            Medium::Socket(socket) => socket.flush(),
            Medium::Port(port) => {
                port.breathe(now, links);
                Some(true)
            }
        }
    }

    /// Frames that were lost for want of memory since the last call.
    pub fn take_missed(&mut self) -> u64 {
        match self {
            Medium::Socket(socket) => socket.take_missed(),
            Medium::Port(port) => port.take_missed(),
        }
    }

    /// Asks to be rung. False when there is something to do.
    pub fn arm(&mut self, now: u64, links: &mut Links) -> bool {
        match self {
            Medium::Socket(_) => true,
            Medium::Port(port) => port.arm(now, links),
        }
    }

    pub fn disarm(&mut self) {
        match self {
            Medium::Socket(_) => {}
            Medium::Port(port) => port.disarm(),
        }
    }

    pub fn next_deadline(&self) -> Option<u64> {
        match self {
            Medium::Socket(_) => None,
            Medium::Port(port) => port.next_deadline(),
        }
    }

    /// What becomes readable when a frame comes, and when an interface changes.
    pub fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Medium::Socket(socket) => socket.wait_fds().to_vec(),
            Medium::Port(port) => port.wait_fds(),
        }
    }
}
