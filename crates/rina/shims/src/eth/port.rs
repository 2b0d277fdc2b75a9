//! A port of a graph as the medium of an Ethernet shim. It can be any app of frames with the ports
//! `input` and `output`. The graph runs within the breath of the shim.
//!
//! ```text
//!   Eth --> Queues --> IpcpEnd --link--> port.input
//!   Eth <-- Queues <-- IpcpEnd <--link-- port.output
//! ```

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use carina_engine::{App, Links, NetworkApp, Packet, Pool as PacketPool};
use carina_frame::{Frame, FrameQueue, Pool, PoolConfig};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{
    AnyConfig, AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Graph, Network, PortList,
    Ports,
};
use carina_netdev::{Interface, InterfaceWatch};
use carina_time::Instant;
use carina_wire::ether::{
    ETHERTYPE_RINA, HEADER_BYTES_MAX, Header, Mac, TPID_CUSTOMER, TPID_PROVIDER, Tag,
};

use super::config::{EthConfig, PortConfig};
use super::received::Received;
use crate::error::ShimError;

/// Everything needed to create a port on the thread that runs it.
pub(super) struct PortPlan {
    app: Arc<dyn AnyConfig>,
    mac: Mac,
    mtu: usize,
    /// If the port is an interface of the kernel: its name, its state, and a watch for changes.
    interface: Option<(String, Interface, InterfaceWatch)>,
    counters: Counters,
    vlan: u16,
    ethertypes: [u16; 2],
}

/// The file with the counters of the port. It is deleted with the port.
struct Counters {
    file: CounterFile,
    path: PathBuf,
}

impl Drop for Counters {
    fn drop(&mut self) {
        // The file may already be deleted, together with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl PortPlan {
    /// Checks the interface that the configuration names, and creates the counter file.
    ///
    /// # Errors
    /// What is wrong with the configuration or the interface.
    pub(super) fn new(config: &EthConfig, port: &PortConfig) -> Result<PortPlan, ShimError> {
        let interface = match config.interface.as_str() {
            "" => None,
            name => Some((
                name.to_owned(),
                Interface::named(name)?,
                InterfaceWatch::new()?,
            )),
        };
        let own = interface.as_ref().map(|(_, found, _)| Mac(found.mac));
        let mtu = match &interface {
            Some((_, found, _)) => found.mtu,
            None => config.mtu.unwrap_or(MTU_DEFAULT),
        };
        if mtu > MTU_MAX {
            return Err(ShimError::PortMtu {
                mtu,
                mtu_max: MTU_MAX,
            });
        }
        let at = |error| ShimError::system("creating the counter file of the port")(error);
        let counters = Counters {
            file: CounterFile::create(&port.counters).map_err(at)?,
            path: port.counters.clone(),
        };
        Ok(PortPlan {
            app: Arc::clone(&port.app),
            mac: port.mac.or(own).unwrap_or(port.mac_default),
            mtu,
            interface,
            counters,
            vlan: config.vlan,
            ethertypes: [ETHERTYPE_RINA, config.dialect.ethertype],
        })
    }

    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Creates the port. Received SDUs are copied into buffers of `packets`.
    ///
    /// # Errors
    /// The port cannot be created, or there is not enough memory for frames.
    pub(super) fn open(self, packets: PacketPool) -> Result<Port, ShimError> {
        let pool = Pool::new(PoolConfig {
            frames: FRAMES,
            frame_bytes: (self.mtu + HEADER_BYTES_MAX).max(PoolConfig::default().frame_bytes),
        })?;
        let system = |error| ShimError::system("creating the graph of the port")(error);
        let counters = self.counters.file.clone();
        let mut network = Network::new(pool.clone(), counters).map_err(system)?;
        let mut graph = Graph::new();
        graph.app("ipcp", IpcpEndConfig).app_of("port", self.app);
        graph.link("ipcp.output -> port.input")?;
        graph.link("port.output -> ipcp.input")?;
        network.configure(&graph)?;
        let end: &IpcpEnd = network.app("ipcp").expect("the graph has this app");
        let queues = Rc::clone(&end.queues);
        let network = Rc::new(RefCell::new(network));
        Ok(Port {
            network: NetworkApp::new(network).map_err(system)?,
            queues,
            pool,
            packets,
            reserved: None,
            mac: self.mac,
            mtu: self.mtu,
            interface: self.interface,
            vlan: self.vlan,
            ethertypes: self.ethertypes,
            missed: 0,
            _counters: self.counters,
        })
    }
}

/// An open port.
pub(super) struct Port {
    network: NetworkApp,
    queues: Rc<RefCell<Queues>>,
    pool: Pool,
    packets: PacketPool,
    /// The frame that [`Port::reserve`] returned, until it is committed.
    reserved: Option<Frame>,
    mac: Mac,
    mtu: usize,
    interface: Option<(String, Interface, InterfaceWatch)>,
    vlan: u16,
    ethertypes: [u16; 2],
    /// Frames for which there was no buffer.
    missed: u64,
    _counters: Counters,
}

impl Port {
    pub(super) fn mac(&self) -> Mac {
        self.mac
    }

    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Whether frames can be sent. A port without interface can always send.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn link(&self) -> Result<(), ShimError> {
        match &self.interface {
            Some((name, interface, _)) if !interface.is_up => Err(ShimError::Down(name.clone())),
            _ => Ok(()),
        }
    }

    pub(super) fn has_changed(&self) -> bool {
        let watch = self.interface.as_ref().map(|(_, _, watch)| watch);
        watch.is_some_and(InterfaceWatch::has_changed)
    }

    /// Checks the interface. The port itself also does.
    ///
    /// # Errors
    /// The reason why frames can no longer be sent.
    pub(super) fn check_interface(&mut self) -> Result<(), ShimError> {
        if let Some((name, interface, _)) = &mut self.interface {
            match Interface::named(name) {
                Ok(found) => {
                    // The pool was made for frames of the first MTU, so the MTU cannot grow.
                    self.mtu = self.mtu.min(found.mtu);
                    *interface = found;
                }
                Err(error) => {
                    interface.is_up = false;
                    return Err(error.into());
                }
            }
        }
        self.link()
    }

    /// Runs one breath of the graph. Returns whether a frame moved.
    pub(super) fn breathe(&mut self, now: Instant, links: &mut Links) -> bool {
        self.network.pull(now, links)
    }

    /// The next frame of the shim's VLAN and Ethertypes. Other frames are skipped, as a filter on
    /// an interface would.
    pub(super) fn receive(&mut self) -> Option<Received> {
        loop {
            let frame = self.queues.borrow_mut().from_graph.pop()?;
            let tpids = [TPID_CUSTOMER, TPID_PROVIDER];
            let Ok((header, bytes)) = Header::decode(frame.bytes(), &tpids) else {
                continue;
            };
            let vlan = header.tag.map_or(0, |tag: Tag| tag.vlan);
            if vlan != self.vlan || !self.ethertypes.contains(&header.ethertype) {
                continue;
            }
            match Packet::copy_of(&frame.bytes()[bytes..], &self.packets) {
                Some(payload) => {
                    return Some(Received {
                        header,
                        payload,
                        is_cut: false,
                    });
                }
                None => self.missed += 1,
            }
        }
    }

    pub(super) fn has_frame(&self) -> bool {
        !self.queues.borrow().from_graph.is_empty()
    }

    pub(super) fn free_frames(&self) -> usize {
        self.queues.borrow().to_graph.room()
    }

    pub(super) fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.free_frames() == 0 {
            return None;
        }
        let mut frame = self.pool.take()?;
        if !frame.set_len(bytes) {
            return None;
        }
        Some(self.reserved.insert(frame).bytes_mut())
    }

    pub(super) fn commit(&mut self) {
        if let Some(frame) = self.reserved.take() {
            // Cannot fail: there was room when the frame was reserved.
            let _ = self.queues.borrow_mut().to_graph.push(frame);
        }
    }

    pub(super) fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    pub(super) fn arm(&mut self, now: Instant, links: &mut Links) -> bool {
        self.queues.borrow().to_graph.is_empty() && self.network.arm(now, links)
    }

    pub(super) fn disarm(&mut self) {
        self.network.disarm();
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.network.next_deadline()
    }

    pub(super) fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        let graph = self.network.wait_fds().into_iter().map(|(fd, _)| fd);
        let watch = self.interface.iter().map(|(_, _, watch)| watch.as_fd());
        graph.chain(watch).collect()
    }
}

/// Queues of frames between the shim and its graph.
struct Queues {
    to_graph: FrameQueue,
    from_graph: FrameQueue,
}

/// The app that represents the shim in its graph.
struct IpcpEnd {
    queues: Rc<RefCell<Queues>>,
}

#[derive(Clone, Debug, PartialEq)]
struct IpcpEndConfig;

impl AppConfig for IpcpEndConfig {
    const KIND: &'static str = "ipcp";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = IpcpEnd;

    fn build(&self, _: &mut AppContext<'_>) -> Result<IpcpEnd, AppError> {
        let queues = Queues {
            to_graph: FrameQueue::new(QUEUE_FRAMES),
            from_graph: FrameQueue::new(QUEUE_FRAMES),
        };
        Ok(IpcpEnd {
            queues: Rc::new(RefCell::new(queues)),
        })
    }
}

impl FrameApp for IpcpEnd {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let queue = &mut self.queues.borrow_mut().to_graph;
        ports.fill(0, FRAME_BURST, || queue.pop());
    }

    /// Frames for which there is no room wait on the link. When the link is full, it drops frames
    /// and counts them.
    fn push(&mut self, ports: &mut Ports<'_>) {
        let queue = &mut self.queues.borrow_mut().from_graph;
        for _ in 0..queue.room() {
            let Some(frame) = ports.receive(0) else {
                return;
            };
            let _ = queue.push(frame);
        }
    }
}

/// Number of frames in the pool: as many as the port's rings hold, and as many again in transit.
const FRAMES: usize = 8192;

/// Largest number of frames that wait for the shim, or for its graph.
const QUEUE_FRAMES: usize = 512;

/// Default MTU, in bytes, of a port that is not an interface, and the largest possible one.
const MTU_DEFAULT: usize = 1500;
const MTU_MAX: usize = 9000;
