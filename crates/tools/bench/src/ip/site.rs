//! Two namespaces, and the three links between them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_api::DifName;
use carina_api::paths::RunDir;
use carina_client::Node;
use carina_ip::{Address, IpSettings, Member};
use carina_lab::{Network, TestNode};
use carina_measure::results::{Metric, OURS};
use carina_namespaces::Namespace;
use carina_netdev::{InterfaceAddresses, Tap, TapLayer, TapOffload, bring_up};
use carina_sys::EventFd;

use super::connection::{Load, measure};
use super::copy_loop::CopyLoop;
use super::{LIMIT, SHARED_SYSTEMS};
use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;

/// Everything that a measurement needs. It ends when it is dropped.
pub(super) struct Site {
    names: [String; 2],
    // Members and loop end before the node, and all of them before the namespaces.
    _members: [RunningMember; 2],
    _copy_loop: CopyLoop,
    _node: TestNode,
    _namespaces: [Namespace; 2],
}

/// A member in a thread, which ends when this value is dropped.
pub(super) struct RunningMember {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    /// Makes the namespaces, the node and the links.
    pub(super) fn start() -> Result<Site> {
        let names = ["a", "b"].map(|side| format!("bip{}-{side}", std::process::id()));
        let [first, second] = &names;
        let namespaces = [Namespace::new(first)?, Namespace::new(second)?];
        namespaces[0].connect(VETH, &namespaces[1], VETH)?;
        for (n, namespace) in namespaces.iter().enumerate() {
            let address = address(super::VETH, n);
            namespace.ip(&["address", "add", &address.to_string(), "dev", VETH])?;
            namespace.ip(&["link", "set", VETH, "mtu", "1500", "up"])?;
        }
        let copy_loop = CopyLoop::start([limit_tap(first, 0)?, limit_tap(second, 1)?])?;
        let node = TestNode::start("ip", Network::Shared, None)?;
        let run = RunDir::new(node.path());
        let members = [
            start_member(&run, first, 0)?,
            start_member(&run, second, 1)?,
        ];
        wait_for_members(&run, 2)?;
        Ok(Site {
            names,
            _members: members,
            _copy_loop: copy_loop,
            _node: node,
            _namespaces: namespaces,
        })
    }

    /// Measures one connection.
    pub(super) fn measure(&self, system: &str, load: Load) -> Result<Vec<(Metric, f64)>> {
        let server = host(system, 1);
        let measured = measure(&self.names[0], &self.names[1], server, load)?;
        let times = &measured.round_trips;
        if let Some(mbps) = measured.mbps().filter(|_| !load.is_echoed) {
            return Ok(vec![(Metric::GoodputMbps, mbps)]);
        }
        let at = |share: usize| times.get(times.len() * share / 100).map(|ns| ns / 1000.0);
        match (at(50), at(99)) {
            (Some(median), Some(p99)) => {
                Ok(vec![(Metric::RttP50Us, median), (Metric::RttP99Us, p99)])
            }
            _ => Err(Error::NoAnswer(format!("{system}: no message arrived"))),
        }
    }
}

impl Drop for RunningMember {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a member does not panic");
        }
    }
}

impl RunningMember {
    /// Starts a member of the node with this run directory.
    ///
    /// # Errors
    /// The member does not start, or the system refuses an event descriptor.
    pub(super) fn start(node: Node, run: &RunDir, settings: IpSettings) -> Result<RunningMember> {
        let mut member = Member::start(node, run, settings)?;
        let stop = Arc::new(EventFd::new().attempt("making an event descriptor")?);
        let of_thread = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // If it ends early, the measurement fails and says so.
            let _ = member.run(&*of_thread);
        });
        Ok(RunningMember {
            stop,
            thread: Some(thread),
        })
    }
}

fn start_member(run: &RunDir, namespace: &str, n: usize) -> Result<RunningMember> {
    let dif = DifName::new("local").expect("a constant that is a name");
    let settings = IpSettings {
        tun: format!("bip{n}"),
        netns: Some(namespace.into()),
        ..IpSettings::new(dif, address(OURS, n))
    };
    let node = Node::connect_to(run.ipc_sock()).attempt("reaching the node")?;
    RunningMember::start(node, run, settings)
}

/// Waits until each of the node's `count` members knows one member besides.
///
/// # Errors
/// They do not find each other in time.
pub(super) fn wait_for_members(run: &RunDir, count: usize) -> Result<()> {
    let deadline = Instant::now() + START;
    loop {
        let all = carina_ip::read_all(run).attempt("reading the state of the members")?;
        if all.len() == count && all.iter().all(|candidate| candidate.members.len() == 1) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::NoAnswer(
                "the members do not find each other".to_owned(),
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The interface of the bare loop in a namespace.
fn limit_tap(namespace: &str, n: usize) -> Result<Tap> {
    let offload = TapOffload {
        checksum: true,
        segmentation: true,
        ..TapOffload::default()
    };
    within(namespace, || {
        let tap = Tap::open(LIMIT_TUN, TapLayer::Ip, offload)?;
        let address = address(LIMIT, n);
        let mut addresses = InterfaceAddresses::of(LIMIT_TUN)?;
        addresses.add_address(address.address, address.bits)?;
        bring_up(LIMIT_TUN, Some(MTU))?;
        Ok(tap)
    })
}

fn address(system: &str, n: usize) -> Address {
    Address {
        address: host(system, n).into(),
        bits: 24,
    }
}

/// The address of the first or second namespace in a system.
fn host(system: &str, n: usize) -> Ipv4Addr {
    let of_system = SHARED_SYSTEMS.iter().position(|name| *name == system);
    let network = of_system.unwrap_or(0) as u8 + 1;
    Ipv4Addr::new(10, 9, network, n as u8 + 1)
}

const VETH: &str = "veth0";
const LIMIT_TUN: &str = "limit0";
/// MTU of the bare loop's interfaces, the same as for `carina ip` over shared memory.
const MTU: usize = 9000;
/// How long the members may take to find each other.
const START: Duration = Duration::from_secs(30);
