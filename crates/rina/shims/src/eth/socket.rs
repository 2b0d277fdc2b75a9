//! An interface of the kernel under an Ethernet shim: a packet socket beside the kernel's stack.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use carina_engine::Packet;
use carina_netdev::{
    Filter, Interface, InterfaceWatch, Layout, NetdevError, PacketSocket, VlanMatch,
};
use carina_ring::{Lease, RingMap};
use carina_wire::ether::{ETHERTYPE_RINA, HEADER_BYTES_MAX, Header, Mac};

use super::config::EthConfig;
use super::medium::Received;
use crate::error::ShimError;

/// An open interface.
pub(super) struct Socket {
    name: String,
    vlan: u16,
    interface: Interface,
    socket: PacketSocket,
    /// The receive ring once more, for packets that stay in it until the end of the breath.
    ring: Arc<RingMap>,
    watch: InterfaceWatch,
    has_received: bool,
}

impl Socket {
    /// Opens the interface of the configuration.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn open(config: &EthConfig) -> Result<Socket, ShimError> {
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
        // A card that filters VLANs would pass none but those the kernel knows of. Where that is
        // refused the interface may still pass them.
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

    pub fn mac(&self) -> Mac {
        Mac(self.interface.mac)
    }

    /// What a frame carries. The tag does not count, for interfaces that take tagged frames take
    /// them 4 bytes longer; where one does not, `mtu` of the configuration says so.
    pub fn mtu(&self) -> usize {
        let fits = self.socket.frame_bytes_max() - HEADER_BYTES_MAX;
        self.interface.mtu.min(fits)
    }

    /// Whether frames can be sent.
    ///
    /// # Errors
    /// Why not.
    pub fn link(&self) -> Result<(), ShimError> {
        if self.interface.is_up {
            Ok(())
        } else {
            Err(ShimError::Down(self.interface.name.clone()))
        }
    }

    pub fn has_changed(&self) -> bool {
        self.watch.has_changed()
    }

    /// Looks at the interface.
    ///
    /// # Errors
    /// Why frames cannot be sent any more.
    pub fn look(&mut self) -> Result<(), ShimError> {
        let found = match Interface::named(&self.name) {
            Ok(found) => found,
            Err(error) => {
                self.interface.is_up = false;
                return Err(error.into());
            }
        };
        if found.index != self.interface.index {
            // Made anew under the same name.
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

    /// The next frame.
    pub fn receive(&mut self) -> Option<Received> {
        let received = self.socket.receive()?;
        self.has_received = true;
        // The filter has passed no frame shorter than a header.
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

    /// Gives back what was received.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.has_received) {
            self.socket.release();
        }
    }

    pub fn has_frame(&self) -> bool {
        self.socket.has_frame()
    }

    pub fn free_frames(&mut self) -> usize {
        self.socket.free_frames()
    }

    pub fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.socket.reserve(bytes)
    }

    pub fn commit(&mut self, bytes: usize) {
        self.socket.commit(bytes);
    }

    /// Hands over what was committed. False when the kernel has to be asked again; `None` when the
    /// interface takes nothing any more.
    pub fn flush(&mut self) -> Option<bool> {
        match self.socket.flush() {
            Ok(is_through) => Some(is_through),
            Err(_) => {
                self.socket.discard();
                None
            }
        }
    }

    /// Frames that the kernel had no place for since the last call.
    pub fn take_missed(&self) -> u64 {
        u64::from(self.socket.take_missed())
    }

    pub fn wait_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.watch.as_fd()]
    }
}
