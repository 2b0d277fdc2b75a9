//! Figures 4b and 4c: VM to VM on one host and on two. A normal DIF over hypervisor shims (and an
//! Ethernet) is compared with UDP and TCP through emulated network cards, taps and bridges.
//!
//! ```text
//!   4b   v1 ---- host ---- v2             4c   v1 ---- h1 ---- h2 ---- v2
//!        net     net      net                  net     net     net    net
//!          hv.v1     hv.v2                       hv.v1     e      hv.v2
//! ```

use std::net::IpAddr;
use std::time::Duration;

use carina_api::control::DifRole;
use carina_api::control::VmpiKind;
use carina_client::FlowSpec;
use carina_lab::{GuestSpec, Network, TestGuest, TestNode};
use carina_measure::results::OURS;
use carina_measure::transport::udp::UDP_SDU_MAX;

use super::client::client_in;
use super::goal::Goal;
use super::request::{FlowTarget, System, TransportSpec};
use super::{CaseResults, PaperOptions, request, sizes_or};
use crate::cards::{Addresses, CARDS};
use crate::error::{Error, Result};
use crate::peer::dif_name;
use crate::vm_and_host::guest_image;

/// The systems in the order of the tables.
pub(super) const SYSTEMS: [&str; 5] = [
    OURS,
    "carina-reliable",
    "virtio-net",
    "e1000",
    "virtio-net-tcp",
];
const PEER: &str = "carina.bench.peer";
/// Longest SDU in bytes.
const SDU_MAX: u64 = 1 << 20;

/// On how many hosts the two VMs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hosts {
    /// One host: figure 4b.
    One,
    /// Two hosts: figure 4c.
    Two,
}

impl Hosts {
    /// Name of the case, with its hosts, in the results and in `--cases`.
    pub(super) fn case(self) -> &'static str {
        match self {
            Hosts::One => "fig4b",
            Hosts::Two => "fig4c",
        }
    }

    /// Minimum for Carina's goodput divided by the goodput of virtio-net.
    fn goal(self) -> f64 {
        match self {
            Hosts::One => 3.0,
            Hosts::Two => 2.0,
        }
    }
}

fn sizes() -> Vec<u64> {
    let mut sizes: Vec<u64> = (250..=4000).step_by(250).collect();
    sizes.extend([1, 64, 16_384, 65_000]);
    sizes.sort_unstable();
    sizes
}

struct Setup {
    // Dropped in this order: guests before the hosts that they are attached to.
    v1: TestGuest,
    v2: TestGuest,
    hosts: Vec<TestNode>,
}

impl Setup {
    fn start(hosts: Hosts, options: &PaperOptions) -> Result<Self> {
        let image = guest_image(options.guest_program.as_deref())?;
        let names: &[&str] = match hosts {
            Hosts::One => &["host"],
            Hosts::Two => &["h1", "h2"],
        };
        let start = |name: &&str| TestNode::start(name, Network::Own, None);
        let nodes = names.iter().map(start);
        let nodes = nodes.collect::<carina_lab::Result<Vec<TestNode>>>()?;
        for node in &nodes {
            node.add_bridge(BRIDGE)?;
        }
        let (first, last) = (&nodes[0], &nodes[nodes.len() - 1]);
        if hosts == Hosts::Two {
            // Two wires of the same kind: one for the kernel's bridges, one for the shim.
            for interface in ["veth0", "veth1"] {
                first.connect(interface, last, interface)?;
            }
            for node in &nodes {
                node.ip(&["link", "set", "dev", "veth0", "master", BRIDGE])?;
                node.add_eth("veth1", "e")?;
            }
        }
        options.progress.step("booting two VMs");
        let v1 = TestGuest::start(&image, first, spec("v1", 1))?;
        let v2 = TestGuest::start(&image, last, spec("v2", 2))?;
        match hosts {
            Hosts::One => first.add_member(DifRole::Create, "net", &["hv.v1", "hv.v2"])?,
            Hosts::Two => {
                first.add_member(DifRole::Create, "net", &["hv.v1", "e"])?;
                last.add_member(DifRole::Join, "net", &["e", "hv.v2"])?;
            }
        }
        let setup = Self {
            v1,
            v2,
            hosts: nodes,
        };
        let ready = setup.prepare(options);
        ready.map_err(|error| setup.explain(error))?;
        Ok(setup)
    }

    fn prepare(&self, options: &PaperOptions) -> Result<()> {
        for (guest, host) in [(&self.v1, 1), (&self.v2, 2)] {
            guest.wait_ready(BOOT)?;
            ADDRESSES.set(guest, host)?;
        }
        options.progress.step("both VMs are up");
        self.v2.run(&format!(
            "(while :; do carina bench-peer {PEER} --stay --wait 20s; sleep 0.2; done) </dev/null \
             >/tmp/peer.log 2>&1 &"
        ))?;
        self.v1.wait_for_name_in("net", PEER, BOOT)?;
        options
            .progress
            .step("the application in one is known in the other");
        Ok(())
    }

    fn explain(&self, error: Error) -> Error {
        let guests = [&self.v1, &self.v2].map(TestGuest::logs);
        let hosts = self.hosts.iter().map(TestNode::logs);
        let logs: Vec<String> = guests.into_iter().chain(hosts).collect();
        error.with(logs.join("\n"))
    }
}

/// A guest whose node joins the DIF `net`. The last byte of its IP addresses is `host`.
fn spec(name: &str, host: u8) -> GuestSpec {
    GuestSpec {
        name: name.to_owned(),
        vmpi: vec![VmpiKind::Ivshmem],
        memory_mib: 256,
        nics: ADDRESSES.nics(name, host, |_| None),
        bridge: Some(BRIDGE.to_owned()),
        node_config: format!(
            "[[dif]]\nname = \"net\"\nrole = \"join\"\nover = [\"hv.{name}\"]\nipcp = \"net.{name}\"\n"
        ),
        parameters: Vec::new(),
        vsock_socket: None,
    }
}

/// UDP through each card, and TCP through virtio-net, from guest `client` to guest `server`.
fn through_cards(client: u8, server: u8) -> Vec<System> {
    let address = |card, host| IpAddr::V4(ADDRESSES.of(card, host));
    let udp = CARDS.iter().map(|card| System {
        name: card.system.to_owned(),
        transport: TransportSpec::Udp {
            server: address(card, server),
            client: address(card, client),
        },
        sdu_max: UDP_SDU_MAX,
    });
    let tcp = System {
        name: "virtio-net-tcp".to_owned(),
        transport: TransportSpec::Tcp(address(&CARDS[0], server)),
        sdu_max: 1 << 20,
    };
    udp.chain([tcp]).collect()
}

/// Runs the measurement.
///
/// # Errors
/// VMs do not start, or a measurement fails.
pub(super) fn run(options: &PaperOptions, hosts: Hosts) -> Result<CaseResults> {
    let case = hosts.case();
    let setup = Setup::start(hosts, options)?;
    let net = |spec| {
        Ok::<FlowTarget, Error>(FlowTarget {
            dif: dif_name("net")?,
            spec,
        })
    };
    let flow = |name: &str, spec| {
        Ok::<System, Error>(System {
            name: name.to_owned(),
            transport: TransportSpec::Flow(net(spec)?),
            sdu_max: SDU_MAX,
        })
    };
    let mut request = request(options, PEER, net(FlowSpec::reliable())?)?;
    request.systems = vec![
        flow(OURS, FlowSpec::flow_controlled())?,
        flow("carina-reliable", FlowSpec::reliable())?,
    ];
    request.systems.extend(through_cards(1, 2));
    request.sizes = sizes_or(options, &sizes());
    let mut found = CaseResults::default();
    for run in 1..=options.runs {
        options
            .progress
            .step(format!("{case}: run {run} of {}", options.runs));
        let measurements = client_in(&setup.v1, &request);
        let measured = measurements.map_err(|error| setup.explain(error));
        if !found.add_run(case, run, measured, options.progress) {
            break;
        }
    }
    found.notes.extend([
        format!(
            "two VMs under QEMU with {}, 1 CPU and 256 MiB each",
            setup.v1.accelerator()
        ),
        "carina: QoS cube 2 of one normal DIF from VM to VM (flow control without \
         retransmission), carina-reliable: cube 3; virtio-net and e1000: UDP through taps and \
         Linux bridges, MTU 1500; goodput is what the receiving application got"
            .to_owned(),
    ]);
    Ok(found)
}

/// The goal that goodput is a multiple of that of virtio-net, at every SDU size.
pub(super) fn goals(found: &CaseResults, hosts: Hosts) -> Vec<Goal> {
    found
        .ratios(OURS, "virtio-net")
        .into_iter()
        .map(|(sdu, ratio)| {
            let goal = format!("{sdu} bytes: at least {} times virtio-net", hosts.goal());
            Goal::new(hosts.case(), goal, hosts.goal(), ratio)
        })
        .collect()
}

/// How long a guest may take from power on until its application is registered.
const BOOT: Duration = Duration::from_secs(240);
const BRIDGE: &str = "br0";
const ADDRESSES: Addresses = Addresses {
    network: 79,
    cards: &CARDS,
};
