//! A domain of Xen and its Dom0, which runs the benchmark.
//!
//! ```text
//!  domain                                           Dom0
//!  bench-peer -- flow: VMPI over grants ----------- benchmark
//!             -- bare rings over grants -----------
//!             -- UDP: netfront -- netback, bridge -
//!  carina-vchan -- libxenvchan -------------------- carina-vchan
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use carina_api::control::{VmCreate, VmpiKind};
use carina_api::{AppName, DifName, LocalName};
use carina_client::FlowSpec;
use carina_lab::{Network, TestGuest, TestNode};
use carina_measure::results::{Metric, Results, Samples, machine};
use carina_measure::trial::target::Target;
use carina_namespaces::NamespaceAccess;
use carina_topology::hv_ipcp;
use carina_vm::{
    Cache, Image, Kernel, XenDomain, XenKind, destroy_xen_domain, xen_domain_number, xen_has_pvh,
};

use crate::client::Client;
use crate::comparison::{System, TransportSpec, goodput_note};
use crate::error::{Attempt, Error, Result};
use crate::hv::HvOptions;
use crate::installed::found;
use crate::peer::{app_name, client_of};
use crate::rate::compare_with_bars;
use crate::vchan::{self, VchanClient};
use crate::vm_and_host::program_of_guest;

/// Names of all systems in the order of the tables.
pub const SYSTEMS: [&str; 4] = [XEN, LIMIT, NETFRONT, VCHAN];

/// Carina over memory that the domain grants to Dom0.
const XEN: &str = "xen";
/// Bare rings over memory that the domain grants.
const LIMIT: &str = "limit";
/// UDP over the domain's network card.
const NETFRONT: &str = "netfront";
/// A stream of bytes by the library of Xen.
const VCHAN: &str = "libxenvchan";

/// Default SDU sizes in bytes: those at which a ratio is required.
pub const SIZES: [u64; 2] = [64, 1500];

/// Minimum for the goodput of flows divided by that of another system.
const BARS: [(&str, f64); 3] = [(NETFRONT, 3.0), (LIMIT, 0.7), (VCHAN, 1.5)];

/// Starts a domain from this system, which is Dom0, and measures all systems in turns.
///
/// # Errors
/// This system is not Dom0; something is missing or fails.
pub fn run(options: &HvOptions) -> Result<Results> {
    let mut setup = Dom0::start(options)?;
    let comparison = options.comparison(&setup.systems);
    let measured = comparison.run(&mut setup.client);
    let (samples, failures) = measured.map_err(|error| error.with(setup.logs()))?;
    let mut notes = std::mem::take(&mut setup.notes);
    notes.extend(bar_notes(&samples));
    Ok(Results {
        bench: "hv".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors: samples.factors_of(XEN),
        failures,
    })
}

/// Judges whether flows reach the required ratio to each other system.
fn bar_notes(samples: &Samples) -> Vec<String> {
    let mut factors = samples.factors_of(XEN);
    factors.retain(|factor| SIZES.contains(&factor.sdu));
    let of_system = |(system, bar): (&str, f64)| {
        compare_with_bars(&factors, system, Metric::GoodputMbps, |_| Some(bar))
    };
    BARS.into_iter().flat_map(of_system).collect()
}

/// The node of Dom0, and a domain with a server of measurements. Dropping the value ends both.
struct Dom0 {
    client: Client,
    systems: Vec<System>,
    notes: Vec<String>,
    // The domain is destroyed before its node ends.
    _domain: Domain,
    _bridge: Option<Bridge>,
    node: TestNode,
}

/// A running domain, which is destroyed when this value is dropped.
struct Domain(LocalName);

impl Drop for Domain {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = destroy_xen_domain(&self.0);
    }
}

/// The bridge of the domain's card, which is removed when this value is dropped.
struct Bridge;

impl Bridge {
    fn make(node: &TestNode) -> Result<Bridge> {
        // A benchmark that was killed leaves its bridge.
        drop(Bridge);
        node.add_bridge(BRIDGE)?;
        let bridge = Bridge;
        node.ip(&["addr", "add", &format!("{HOST}/24"), "dev", BRIDGE])?;
        Ok(bridge)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = NamespaceAccess::of_root().ip(&["link", "del", "dev", BRIDGE]);
    }
}

impl Dom0 {
    fn start(options: &HvOptions) -> Result<Dom0> {
        let progress = options.progress;
        let has = |system: &str| options.systems.contains(&system);
        let has_pvh = xen_has_pvh().attempt("asking xl for the abilities of this host")?;
        let kind = if has_pvh { XenKind::Pvh } else { XenKind::Pv };
        let name = LocalName::new(NAME).attempt("naming the domain")?;
        progress.step("starting the node of Dom0");
        let mut node = TestNode::start(NAME, Network::Shared, None)?;
        let dif = TestGuest::dif(NAME, VmpiKind::Ivshmem)?;
        let port = node.control().create_vm(&VmCreate {
            name: name.clone(),
            region_bytes: None,
            dif: Some(dif.clone()),
            vmpi: Some(VmpiKind::Xen),
            socket: None,
            internet: Vec::new(),
            ip: Vec::new(),
            nat: false,
        });
        port.map_err(|error| Error::Client(format!("making the domain's port: {error}")))?;
        let bridge = has(NETFRONT).then(|| Bridge::make(&node)).transpose()?;
        let helper = found(vchan::PROGRAM).filter(|_| has(VCHAN));
        let domain = boot(options, &name, kind, helper.as_deref(), node.path())?;
        let peer = app_name(PEER)?;
        node.wait_for_name(&peer, BOOT)?;
        progress.step(format!("the domain's application {peer} is registered"));
        let client = Client::open(target(&node, peer)?)?;
        let number = xen_domain_number(&name).attempt("asking xl for the domain")?;
        let mut systems = systems(dif, number);
        let mut notes = notes(kind);
        match helper {
            Some(program) => systems.push(System {
                name: VCHAN,
                transport: TransportSpec::Vchan(VchanClient::start(&program, number)?),
            }),
            None if has(VCHAN) => notes.push(vchan::MISSING.to_owned()),
            None => {}
        }
        systems.retain(|system| has(system.name));
        Ok(Dom0 {
            client,
            systems,
            notes,
            _domain: domain,
            _bridge: bridge,
            node,
        })
    }

    fn logs(&self) -> String {
        self.node.logs()
    }
}

/// The systems that need no program of their own.
fn systems(dif: DifName, domain: u16) -> Vec<System> {
    let udp = TransportSpec::Udp {
        server: IpAddr::V4(GUEST),
        client: IpAddr::V4(HOST),
        through: None,
    };
    let systems = [
        (XEN, TransportSpec::Flow(Some(dif))),
        (LIMIT, TransportSpec::Grants { domain }),
        (NETFRONT, udp),
    ];
    let system = |(name, transport)| System { name, transport };
    systems.into_iter().map(system).collect()
}

/// Starts the domain.
fn boot(
    options: &HvOptions,
    name: &LocalName,
    kind: XenKind,
    helper: Option<&Path>,
    directory: &Path,
) -> Result<Domain> {
    let has_card = options.systems.contains(&NETFRONT);
    options.progress.step("building the domain's image");
    let cache = Cache::default_location().attempt("opening the cache")?;
    let kernel = Kernel::obtain(&cache).attempt("obtaining the domain's kernel")?;
    let program = program_of_guest(options.guest_program.as_deref())?;
    let dif = TestGuest::dif(NAME, VmpiKind::Ivshmem)?;
    let mut image = Image::new()
        .program("/bin/carina", &program)
        .attempt("packing carina")?
        .module("xen_evtchn")
        .module("xen_gntalloc")
        .file("/etc/carina.toml", 0o644, hv_ipcp(0, dif.as_str()))
        .file(SCRIPT, 0o755, script(has_card, helper.is_some()));
    if has_card {
        image = image.module("xen_netfront");
    }
    if let Some(helper) = helper {
        let path = format!("/bin/{}", vchan::PROGRAM);
        image = image
            .program(&path, helper)
            .attempt("packing carina-vchan")?;
    }
    let initramfs = image.build(&cache, &kernel);
    let initramfs = initramfs.attempt("building the domain's image")?;
    let mut domain = XenDomain::new(name.clone(), kind, &kernel.image, &initramfs)
        .memory_mib(MEMORY_MIB)
        .command(&format!("{SCRIPT} &"));
    if has_card {
        domain = domain.bridged_card(BRIDGE);
    }
    // A benchmark that was killed leaves its domain.
    drop(Domain(name.clone()));
    options.progress.step("booting the domain");
    let created = domain.create(&directory.join(format!("{name}.xl")));
    created.attempt("starting the domain by xl")?;
    Ok(Domain(name.clone()))
}

/// The script that the domain runs after its boot. A kernel's command line would be too short. The
/// domain's node, and the other side of a stream, may not be ready, so each server is started until
/// it works.
fn script(has_card: bool, has_vchan: bool) -> String {
    let mut text = String::from("#!/bin/sh\n");
    if has_card {
        // The card appears when Dom0 has connected it.
        text += &format!(
            "(until ip addr add {GUEST}/24 dev eth0; do sleep 1; done\n\
             ip link set dev eth0 up) >/tmp/card.log 2>&1 &\n"
        );
    }
    if has_vchan {
        text += &format!(
            "(while :; do {} serve {}; sleep 1; done) </dev/null >/tmp/vchan.log 2>&1 &\n",
            vchan::PROGRAM,
            vchan::PATH
        );
    }
    text + &format!(
        "while :; do carina bench-peer {PEER} --stay --wait 20s; sleep 1; done </dev/null \
         >/tmp/peer.log 2>&1\n"
    )
}

fn target(node: &TestNode, peer: AppName) -> Result<Target> {
    Ok(Target {
        node: client_of(node)?,
        local: app_name("carina.bench")?,
        remote: peer,
        dif: None,
        spec: FlowSpec::reliable(),
        wait: REACH,
    })
}

fn notes(kind: XenKind) -> Vec<String> {
    let kind = match kind {
        XenKind::Pv => "PV",
        XenKind::Pvh => "PVH",
    };
    vec![
        format!("one boot of one {kind} domain of Xen, 1 CPU, {MEMORY_MIB} MiB; host is Dom0"),
        goodput_note("CPU time is that of the two applications"),
        "xen: flows over memory that the domain grants; limit: bare rings of the same size over \
         such memory, one copy in and one out, both ends spinning, nothing checked"
            .to_owned(),
        "netfront: UDP through netfront and netback and a Linux bridge in Dom0, MTU 1500"
            .to_owned(),
        "libxenvchan: a stream of bytes by the library of Xen, rings of 256 KiB, with the length \
         in front of each SDU"
            .to_owned(),
    ]
}

/// Name of the domain and of the node of Dom0.
const NAME: &str = "carina-bench";
const SCRIPT: &str = "/bin/serve-bench";
const PEER: &str = "carina.bench.guest";
const BRIDGE: &str = "br-carina";
const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const MEMORY_MIB: u32 = 200;
/// How long the domain may take until its application is registered: Xen may be emulated.
const BOOT: Duration = Duration::from_secs(480);
/// How long the application in the domain may take to be reachable again after a failure.
const REACH: Duration = Duration::from_secs(60);
