//! A link to another host that is a flow of the DIF of both hosts: frames of Ethernet are its SDUs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carina_api::{AppName, DifName};
use carina_client::{FlowSpec, Node, SocketFlow};
use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Port, PortList, Ports,
};
use carina_frame::Pool;
use carina_sys::Interest;
use carina_vnet::document::Carrier;
use carina_vnet::host_part::{Far, HostPart};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::error::{Attempt, Error, Result};
use crate::host_dif::{HostDif, Pair};

/// The flows of links that have one, by number.
pub type Flows = BTreeMap<u32, Arc<FlowSocket>>;

/// A flow with its socket.
#[derive(Debug)]
pub struct FlowSocket {
    /// No two flows of this process have the same one.
    pub number: u64,
    socket: OwnedFd,
    has_ended: AtomicBool,
}

impl FlowSocket {
    /// The flow that a socket is.
    pub fn over(socket: OwnedFd) -> Arc<FlowSocket> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(FlowSocket {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            socket,
            has_ended: AtomicBool::new(false),
        })
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

/// Keeps the flow of a link, and asks for another one when it has ended; for as long as this value
/// is there.
#[derive(Debug)]
pub struct FarFlow {
    slot: Arc<Slot>,
    /// What it is the flow of.
    pub key: (u32, Pair),
}

#[derive(Debug, Default)]
struct Slot {
    flow: Mutex<Option<Arc<FlowSocket>>>,
    is_unwanted: AtomicBool,
}

impl FarFlow {
    /// Begins to ask for the flow of the link with a tag, or to wait until it is asked for.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn keep(host: &Arc<HostDif>, tag: u32, pair: Pair) -> Result<FarFlow> {
        let slot = Arc::new(Slot::default());
        let (host, shared) = (Arc::clone(host), Arc::clone(&slot));
        let thread = std::thread::Builder::new().name("far-flow".into());
        let keep = move || {
            let mut worked = Instant::now();
            while shared.is_wanted() {
                // What is missing now may be there later; the status of the link says that it is
                // down meanwhile.
                if shared.serve(&host, tag, pair).is_ok() {
                    worked = Instant::now();
                } else if !pair.is_first() && worked.elapsed() > ANEW {
                    let _ = host.join_anew(pair);
                    worked = Instant::now();
                }
                std::thread::sleep(AGAIN);
            }
        };
        thread.spawn(keep).attempt("starting a thread")?;
        Ok(FarFlow {
            slot,
            key: (tag, pair),
        })
    }

    /// The flow, if there is one.
    pub fn flow(&self) -> Option<Arc<FlowSocket>> {
        self.slot.flow()
    }
}

impl Drop for FarFlow {
    fn drop(&mut self) {
        self.slot.is_unwanted.store(true, Ordering::Release);
    }
}

impl Slot {
    fn is_wanted(&self) -> bool {
        !self.is_unwanted.load(Ordering::Acquire)
    }

    fn flow(&self) -> Option<Arc<FlowSocket>> {
        let flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner);
        flow.clone().filter(|flow| !flow.has_ended())
    }

    fn set(&self, flow: Option<SocketFlow>) {
        let flow = flow.map(|flow| FlowSocket::over(flow.socket));
        *self.flow.lock().unwrap_or_else(PoisonError::into_inner) = flow;
    }

    /// Gets a flow, and returns when it has ended.
    fn serve(
        &self,
        host: &HostDif,
        tag: u32,
        pair: Pair,
    ) -> std::result::Result<(), Box<dyn std::error::Error>> {
        host.ensure(pair)?;
        let node = Node::connect_within(host.socket(), ANSWER)?;
        let dif = DifName::new(pair.dif())?;
        let name = AppName::new(format!("link.{tag}"))?;
        if pair.is_first() {
            let mut registration = node.register(&name, Some(&dif))?;
            while self.is_wanted() {
                if let Some(request) = registration.next_request_timeout(AGAIN)? {
                    let flow = registration.accept_request_socket(&request)?;
                    self.set(Some(flow));
                }
            }
        } else {
            let own = AppName::new(format!("link.{tag}.far"))?;
            let spec = FlowSpec::unreliable();
            let flow = node.allocate_socket(&own, &name, Some(&dif), &spec)?;
            self.set(Some(flow));
            while self.is_wanted() && self.flow().is_some() {
                std::thread::sleep(LOOK);
            }
        }
        self.set(None);
        Ok(())
    }
}

/// The flows of a network's links to other hosts.
#[derive(Debug)]
pub struct FarFlows {
    host: Option<Arc<HostDif>>,
    kept: Mutex<BTreeMap<u32, FarFlow>>,
    /// The numbers of the flows that the engine has.
    taken: Mutex<BTreeMap<u32, u64>>,
}

impl FarFlows {
    /// None yet, over the DIFs of a host.
    pub fn of(host: Option<&Arc<HostDif>>) -> FarFlows {
        FarFlows {
            host: host.map(Arc::clone),
            kept: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// Begins to keep the flows of a part, and no others.
    ///
    /// # Errors
    /// This host has no interface for links to others.
    pub fn keep(&self, part: &HostPart) -> Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = BTreeMap::new();
        for link in part.links.iter().filter(|it| it.carrier == Carrier::Dif) {
            if let Far::Host(far) = &link.far {
                let (local, remote) = (far.local, far.remote);
                wanted.insert(link.number, (link.tag, Pair { local, remote }));
            }
        }
        kept.retain(|number, flow| wanted.get(number) == Some(&flow.key));
        for (number, (tag, pair)) in wanted {
            if let Entry::Vacant(place) = kept.entry(number) {
                let host = self.host.as_ref().ok_or_else(|| Error::Unsupported {
                    what: format!("link {number} to another host"),
                    instead: crate::underlay::NEEDED,
                })?;
                place.insert(FarFlow::keep(host, tag, pair)?);
            }
        }
        Ok(())
    }

    /// The flows that there are, for the engine.
    pub fn take(&self) -> Flows {
        let flows = there(&self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let numbers = flows.iter().map(|(link, flow)| (*link, flow.number));
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = numbers.collect();
        flows
    }

    /// Whether there are other flows than the engine has.
    pub fn have_changed(&self) -> bool {
        let flows = there(&self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let numbers = flows.iter().map(|(link, flow)| (*link, flow.number));
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.collect::<BTreeMap<_, _>>() != *taken
    }
}

fn there(kept: &BTreeMap<u32, FarFlow>) -> Flows {
    let all = kept.iter();
    all.filter_map(|(link, flow)| Some((*link, flow.flow()?)))
        .collect()
}

/// The app of the engine whose wire is a flow; without one it drops what it gets.
///
/// - inputs: `input`: frames that become SDUs
/// - outputs: `output`: frames that were SDUs
/// - counters: `drop_no_flow`; `drop_full`: the flow takes no more at present; `drop_long`: an SDU
///   is longer than a frame
#[derive(Clone, Debug)]
pub struct FlowPortConfig(pub Option<Arc<FlowSocket>>);

impl PartialEq for FlowPortConfig {
    fn eq(&self, other: &FlowPortConfig) -> bool {
        let number = |it: &FlowPortConfig| it.0.as_ref().map(|flow| flow.number);
        number(self) == number(other)
    }
}

/// The app.
pub struct FlowPort {
    flow: Option<Arc<FlowSocket>>,
    pool: Pool,
    buffer: Vec<u8>,
    no_flow: Counter,
    full: Counter,
    long: Counter,
}

impl AppConfig for FlowPortConfig {
    const KIND: &'static str = "flow";
    const INPUTS: PortList = PortList::Named(&[Port::optional("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output")]);
    type App = FlowPort;

    fn build(&self, context: &mut AppContext<'_>) -> std::result::Result<FlowPort, AppError> {
        Ok(FlowPort {
            flow: self.0.clone(),
            pool: context.pool().clone(),
            buffer: vec![0; SDU_MAX],
            no_flow: context.counter("drop_no_flow"),
            full: context.counter("drop_full"),
            long: context.counter("drop_long"),
        })
    }
}

impl FrameApp for FlowPort {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let Some(flow) = &self.flow else { return };
        ports.fill(0, FRAME_BURST, || {
            loop {
                match recv(&flow.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                    Ok((1.., length)) => match self.pool.frame_of(self.buffer.get(..length)?) {
                        Some(frame) => return Some(frame),
                        None => self.long.add(1),
                    },
                    // A message of no bytes is the end: frames have some.
                    Ok((0, _)) => {
                        flow.end();
                        return None;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => return None,
                    Err(_) => {
                        flow.end();
                        return None;
                    }
                }
            }
        });
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        ports.drain(0, |frame| {
            let Some(flow) = &self.flow else {
                self.no_flow.add(1);
                return;
            };
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&flow.socket, frame.bytes(), flags) {
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => self.full.add(1),
                Err(_) => {
                    flow.end();
                    self.no_flow.add(1);
                }
            }
        });
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let flow = self.flow.as_ref()?;
        Some((flow.socket.as_fd(), Interest::ReadEdge))
    }

    fn arm(&mut self) -> bool {
        let Some(flow) = &self.flow else { return true };
        let mut first = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        // What has ended has nothing to pull.
        flow.has_ended() || recv(&flow.socket, &mut first[..], flags).is_err()
    }
}

/// More than any frame of the pool.
const SDU_MAX: usize = 1 << 16;
/// How long the node may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// After which time without a flow the second member joins the DIF anew.
const ANEW: Duration = Duration::from_secs(15);
const AGAIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use carina_engine::counter_file::CounterFile;
    use carina_engine::frames::{Graph, Network};
    use carina_frame::PoolConfig;
    use carina_time::Instant;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn frames_are_sdus_until_the_flow_has_ended() {
        let pair = || {
            socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::empty(),
                None,
            )
            .unwrap()
        };
        let mut graph = Graph::new();
        let mut ends = Vec::new();
        for name in ["one", "two"] {
            let (ours, theirs) = pair();
            let flow = FlowSocket::over(ours);
            graph.app(name, FlowPortConfig(Some(Arc::clone(&flow))));
            ends.push((flow, theirs));
        }
        graph.app("none", FlowPortConfig(None));
        graph.link("one.output -> two.input").unwrap();
        graph.link("two.output -> none.input").unwrap();
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut network = Network::new(pool, CounterFile::private().unwrap()).unwrap();
        network.configure(&graph).unwrap();
        let frame = [7; 1414];
        send(&ends[0].1, &frame, SendFlags::empty()).unwrap();
        send(&ends[1].1, &frame, SendFlags::empty()).unwrap();
        let mut breathe = || {
            for _ in 0..4 {
                network.breathe(Instant::from_millis(1));
            }
        };
        breathe();
        let mut buffer = [0; 2000];
        let (_, length) = recv(&ends[1].1, &mut buffer, RecvFlags::DONTWAIT).unwrap();
        assert_eq!(buffer[..length], frame);
        let (flow, theirs) = ends.remove(0);
        drop(theirs);
        breathe();
        assert!(flow.has_ended() && !ends[0].0.has_ended());
    }
}
