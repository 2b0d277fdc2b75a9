//! The TUN interface of a member: made in its network namespace, with its addresses and routes. The
//! kernel removes all of them when the process ends, however it ends.

use std::fs;
use std::path::{Path, PathBuf};

use carina_netdev::{InterfaceAddresses, Masquerade, Tap, TapLayer, TapOffload, bring_up};
use carina_sys::NetworkNamespace;

use crate::error::IpError;
use crate::prefix::IpPrefix;
use crate::settings::IpSettings;

/// The interface, and the translation of addresses behind it if the settings ask for one.
#[derive(Debug)]
pub(crate) struct TunInterface {
    /// The queues of the interface.
    pub queues: Vec<Tap>,
    /// Whether the kernel chooses queues by addresses and ports; `false` with one queue.
    pub is_steered: bool,
    pub masquerade: Option<Masquerade>,
}

/// Makes the interface of the settings with an MTU of `mtu` bytes.
///
/// # Errors
/// The namespace cannot be entered, or the kernel refuses the interface, an address, a route, the
/// translation of addresses or forwarding.
pub(crate) fn open(settings: &IpSettings, mtu: usize) -> Result<TunInterface, IpError> {
    let Some(netns) = &settings.netns else {
        return open_here(settings, mtu);
    };
    let path = namespace_path(netns);
    let failed = |source| IpError::Namespace {
        path: path.clone(),
        source,
    };
    let namespace = NetworkNamespace::open(&path).map_err(failed)?;
    namespace
        .within(|| open_here(settings, mtu))
        .map_err(failed)?
}

fn open_here(settings: &IpSettings, mtu: usize) -> Result<TunInterface, IpError> {
    let offload = TapOffload {
        checksum: true,
        segmentation: true,
        datagrams: true,
    };
    let queues = Tap::open_queues(&settings.tun, TapLayer::Ip, offload, settings.queues)?;
    let is_steered = steer(&queues);
    let mut addresses = InterfaceAddresses::of(&settings.tun)?;
    for address in &settings.address {
        addresses.add_address(address.address, address.bits)?;
    }
    bring_up(&settings.tun, Some(mtu))?;
    let links: Vec<IpPrefix> = settings
        .address
        .iter()
        .map(|address| address.link())
        .collect();
    for route in settings
        .route
        .iter()
        .filter(|candidate| !links.contains(candidate))
    {
        addresses.add_route(route.address(), route.bits())?;
    }
    Ok(TunInterface {
        queues,
        is_steered,
        masquerade: masquerade(settings)?,
    })
}

/// Has the kernel choose queues by addresses and ports. Returns whether it does.
fn steer(queues: &[Tap]) -> bool {
    let [first, _, ..] = queues else {
        return false;
    };
    let steered = first.steer_by_flow();
    if let Err(error) = &steered {
        // Packets of a connection then change their order when the kernel moves the connection.
        let tun = first.name();
        tracing::warn!(target: "carina::ip", "{tun}: the kernel chooses queues: {error}");
    }
    steered.is_ok()
}

/// Translates the addresses of the settings' `nat`, and has the kernel forward their packets.
fn masquerade(settings: &IpSettings) -> Result<Option<Masquerade>, IpError> {
    if settings.nat.is_empty() {
        return Ok(None);
    }
    for (version, file) in [(4, FORWARDING_V4), (6, FORWARDING_V6)] {
        let is_wanted = settings
            .nat
            .iter()
            .any(|prefix| matches!(prefix, IpPrefix::V4(_)) == (version == 4));
        let forwards = || fs::read_to_string(file).is_ok_and(|text| text.trim() != "0");
        if !is_wanted || forwards() {
            continue;
        }
        if version == 6 {
            // Forwarding makes the kernel ignore router advertisements, and with them the default
            // route of many hosts.
            return Err(IpError::Forwarding(FORWARDING_V6));
        }
        fs::write(file, "1").map_err(IpError::system("turning on net.ipv4.ip_forward"))?;
        tracing::info!(target: "carina::ip", "{}: net.ipv4.ip_forward is now 1", settings.tun);
    }
    let prefixes = settings
        .nat
        .iter()
        .map(|prefix| (prefix.address(), prefix.bits()));
    let prefixes: Vec<_> = prefixes.collect();
    Ok(Some(Masquerade::start(&settings.tun, &prefixes)?))
}

/// The file of a namespace that is given by its name or by its path.
fn namespace_path(netns: &Path) -> PathBuf {
    Path::new(NETNS).join(netns)
}

/// Directory of the named network namespaces. A path that begins with `/` replaces it.
const NETNS: &str = "/run/netns";
const FORWARDING_V4: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARDING_V6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
