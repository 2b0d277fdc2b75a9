//! An interface of the kernel as the medium of an Ethernet shim, by a packet socket beside the
//! kernel's network stack.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use carina_engine::Packet;
use carina_netdev::{
    Filter, Interface, InterfaceWatch, Layout, NetdevError, PacketSocket, VlanMatch,
};
use carina_ring::{Lease, RingMap};
use carina_wire::ether::{ETHERTYPE_RINA, HEADER_BYTES_MAX, Header, Mac};

use super::config::EthConfig;
use super::received::Received;
use crate::error::ShimError;

/// An open interface, with its packet socket.
pub(super) struct Socket {
    name: String,
    vlan: u16,
    interface: Interface,
    socket: PacketSocket,
    /// A second mapping of the receive ring, for packets that stay in the ring until the end of the
    /// breath.
    ring: Arc<RingMap>,
    watch: InterfaceWatch,
    has_received: bool,
}

impl Socket {
    /// Opens the configured interface.
    ///
    /// # Errors
    /// What is wrong with the configuration or the interface.
    pub(super) fn open(config: &EthConfig) -> Result<Socket, ShimError> {
        let vlan = match config.vlan {
            0 => VlanMatch::Untagged,
            id => VlanMatch::Id(id),
        };
        let arp = config.dialect.ethertype;
        let filter = Filter::ethernet(vlan, &[ETHERTYPE_RINA], &[arp], ETHERTYPE_RINA);
        let open = || -> Result<_, NetdevError> {
            let interface = Interface::named(&config.interface)?;
            let layout = Layout::for_mtu(interface.mtu);
            let socket = PacketSocket::open(&interface, layout, Some(&filter))?;
            Ok((interface, socket, InterfaceWatch::new()?))
        };
        let (interface, socket, watch) = open()?;
        // A card that filters VLANs would only pass the VLANs that the kernel knows. If promiscuous
        // mode is refused, the interface may still pass the frames.
        if config.vlan != 0 {
            let _ = socket.be_promiscuous(&interface);
        }
        let what = format!("memory of the ring of {}", interface.name);
        let map = |error| ShimError::system(what.as_str())(error);
        let again = socket.map_again().map_err(map)?;
        let ring = RingMap::foreign(again, socket.rx_bytes()).map_err(map)?;
        Ok(Socket {
            name: config.interface.clone(),
            vlan: config.vlan,
            interface,
            socket,
            ring: Arc::new(ring),
            watch,
            has_received: false,
        })
    }

    pub(super) fn mac(&self) -> Mac {
        Mac(self.interface.mac)
    }

    /// Longest payload of a frame. The tag does not count, because interfaces that accept tagged
    /// frames accept them 4 bytes longer. For an interface that does not, set `mtu` in the
    /// configuration.
    pub(super) fn mtu(&self) -> usize {
        let fits = self.socket.frame_bytes_max() - HEADER_BYTES_MAX;
        self.interface.mtu.min(fits)
    }

    /// Whether frames could be sent when the interface was last checked.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn link(&self) -> Result<(), ShimError> {
        if self.interface.is_up {
            Ok(())
        } else {
            Err(ShimError::Down(self.interface.name.clone()))
        }
    }

    pub(super) fn has_changed(&self) -> bool {
        self.watch.has_changed()
    }

    /// Checks the interface.
    ///
    /// # Errors
    /// The reason why frames can no longer be sent.
    pub(super) fn check_interface(&mut self) -> Result<(), ShimError> {
        let found = match Interface::named(&self.name) {
            Ok(found) => found,
            Err(error) => {
                self.interface.is_up = false;
                return Err(error.into());
            }
        };
        if found.index != self.interface.index {
            // The interface was deleted and recreated with the same name.
            if let Err(error) = self.socket.bind(&found) {
                self.interface.is_up = false;
                return Err(error.into());
            }
            if self.vlan != 0 {
                let _ = self.socket.be_promiscuous(&found);
            }
        }
        self.interface = found;
        self.link()
    }

    /// The next received frame.
    pub(super) fn receive(&mut self) -> Option<Received> {
        let received = self.socket.receive()?;
        self.has_received = true;
        // Cannot fail: the filter passes no frame shorter than its header.
        let (header, bytes) = Header::decode(received.frame, &[]).ok()?;
        let (at, len) = (received.at + bytes, received.frame.len() - bytes);
        let is_cut = received.is_cut;
        let lease = Lease::over(&self.ring, at, len);
        Some(Received {
            header,
            payload: Packet::from_lease(lease, false),
            is_cut,
        })
    }

    /// Releases the received frames.
    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.has_received) {
            self.socket.release();
        }
    }

    pub(super) fn has_frame(&self) -> bool {
        self.socket.has_frame()
    }

    pub(super) fn free_frames(&mut self) -> usize {
        self.socket.free_frames()
    }

    pub(super) fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.socket.reserve(bytes)
    }

    pub(super) fn commit(&mut self, bytes: usize) {
        self.socket.commit(bytes);
    }

    /// Hands committed frames to the kernel. `Some(false)` means that the kernel must be called
    /// again, `None` that the interface is down.
    pub(super) fn flush(&mut self) -> Option<bool> {
        match self.socket.flush() {
            Ok(is_through) => Some(is_through),
            Err(_) => {
                self.socket.discard();
                None
            }
        }
    }

    /// Frames lost since the last call because the kernel had no room for them.
    pub(super) fn take_missed(&self) -> u64 {
        u64::from(self.socket.take_missed())
    }

    pub(super) fn wait_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.watch.as_fd()]
    }
}
