//! Figures 4b and 4c: VM to VM on one host and on two; a normal DIF over hypervisor shims (and an
//! Ethernet) beside UDP and TCP through emulated network cards, taps and bridges.
//!
//! ```text
//!   4b   v1 ---- host ---- v2             4c   v1 ---- h1 ---- h2 ---- v2
//!        net     net      net                  net     net     net    net
//!          hv.v1     hv.v2                       hv.v1     e      hv.v2
//! ```

use carina_api::control::DifRole;
use carina_client::FlowSpec;
use carina_measure::results::{OURS, Results};

use super::guest::{Guest, Kit, cards};
use super::order::{Means, System, Way};
use super::place::{Place, dif_name, wire};
use super::verdict::{Verdict, ratios};
use super::{CaseFound, PaperOptions, order, sizes_or};
use crate::failure::Failure;
use crate::report::progress;

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 5] = [
    OURS,
    "carina-reliable",
    "virtio-net",
    "e1000",
    "virtio-net-tcp",
];
const PEER: &str = "carina.bench.peer";
/// Longest SDU, in bytes.
const SDU_MAX: u64 = 1 << 20;

/// One host or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Figure 4b.
    One,
    /// Figure 4c.
    Two,
}

impl Hosts {
    /// Name of the case.
    pub fn case(self) -> &'static str {
        match self {
            Hosts::One => "fig4b",
            Hosts::Two => "fig4c",
        }
    }

    /// Goodput over that of virtio-net that is wanted.
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

struct Lab {
    // In this order: guests before the hosts that they are attached to.
    v1: Guest,
    v2: Guest,
    hosts: Vec<Place>,
}

impl Lab {
    fn start(hosts: Hosts, kit: &Kit) -> Result<Self, Failure> {
        let names: &[&str] = match hosts {
            Hosts::One => &["host"],
            Hosts::Two => &["h1", "h2"],
        };
        let places: Result<Vec<Place>, Failure> = names.iter().map(|n| Place::start(n)).collect();
        let places = places?;
        for place in &places {
            place.ip(&["link", "add", "name", "br0", "type", "bridge"])?;
            place.ip(&["link", "set", "dev", "br0", "up"])?;
        }
        let (first, last) = (&places[0], &places[places.len() - 1]);
        if hosts == Hosts::Two {
            // One wire for the kernel's bridges and one for the shim, of the same kind.
            for interface in ["veth0", "veth1"] {
                wire(first, interface, last, interface)?;
            }
            for place in &places {
                place.ip(&["link", "set", "dev", "veth0", "master", "br0"])?;
                place.eth("veth1", "e", None)?;
            }
        }
        progress("booting two VMs");
        let v1 = kit.start(first, "v1", 1)?;
        let v2 = kit.start(last, "v2", 2)?;
        match hosts {
            Hosts::One => first.member(DifRole::Create, "net", &["hv.v1", "hv.v2"])?,
            Hosts::Two => {
                first.member(DifRole::Create, "net", &["hv.v1", "e"])?;
                last.member(DifRole::Join, "net", &["e", "hv.v2"])?;
            }
        }
        let lab = Self {
            v1,
            v2,
            hosts: places,
        };
        let ready = lab.prepare();
        ready.map_err(|failure| lab.explain(&failure))?;
        Ok(lab)
    }

    fn prepare(&self) -> Result<(), Failure> {
        self.v1.prepare(1)?;
        self.v2.prepare(2)?;
        progress("both VMs are up");
        self.v2.start_peer(PEER)?;
        self.v1.reaches("net", PEER)?;
        progress("the application in one is known in the other");
        Ok(())
    }

    fn explain(&self, failure: &Failure) -> Failure {
        let failure = self.v2.explain(&self.v1.explain(failure));
        let logs: Vec<String> = self.hosts.iter().map(Place::logs).collect();
        Failure::Failed(format!("{failure}\n{}", logs.join("\n")))
    }
}

/// Measures.
///
/// # Errors
/// VMs do not start, or a measurement fails.
pub fn run(options: &PaperOptions, hosts: Hosts) -> Result<CaseFound, Failure> {
    let case = hosts.case();
    let kit = Kit::prepare(options.guest_program.as_deref())?;
    let lab = Lab::start(hosts, &kit)?;
    let net = |spec| {
        Ok::<Way, Failure>(Way {
            dif: dif_name("net")?,
            spec,
        })
    };
    let flow = |name: &str, spec| {
        Ok::<System, Failure>(System {
            name: name.to_owned(),
            means: Means::Flow(net(spec)?),
            sdu_max: SDU_MAX,
        })
    };
    let mut order = order(options, PEER, net(FlowSpec::reliable())?)?;
    order.systems = vec![
        flow(OURS, FlowSpec::flow_controlled())?,
        flow("carina-reliable", FlowSpec::reliable())?,
    ];
    order.systems.extend(cards(1, 2));
    order.sizes = sizes_or(options, &sizes());
    let mut found = CaseFound::default();
    for run in 1..=options.runs {
        progress(format!("{case}: run {run} of {}", options.runs));
        let findings = lab.v1.carry_out(&order);
        let findings = findings.map_err(|failure| lab.explain(&failure))?;
        found.add(case, &findings);
    }
    found.notes.extend([
        format!(
            "two VMs under QEMU with {}, 1 CPU and 256 MiB each",
            lab.v1.accelerator()
        ),
        "carina: QoS cube 2 of one normal DIF from VM to VM (flow control without \
         retransmission), carina-reliable: cube 3; virtio-net and e1000: UDP through taps and \
         Linux bridges, MTU 1500; goodput is what the receiving application got"
            .to_owned(),
    ]);
    Ok(found)
}

/// Whether goodput is what it is to be over that of virtio-net at every SDU size.
pub fn verdicts(results: &Results, hosts: Hosts) -> Vec<Verdict> {
    let case = hosts.case();
    ratios(results, case, OURS, "virtio-net")
        .into_iter()
        .map(|(sdu, ratio)| {
            let goal = format!("{sdu} bytes: at least {} times virtio-net", hosts.goal());
            Verdict::new(case, goal, format!("{ratio:.2}"), ratio >= hosts.goal())
        })
        .collect()
}
