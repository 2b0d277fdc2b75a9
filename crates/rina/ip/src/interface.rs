//! The TUN interface of a member: made in its network namespace, with its addresses and routes. The
//! kernel removes all of them when the process ends, however it ends.

use std::path::{Path, PathBuf};

use carina_netdev::{InterfaceAddresses, Tap, TapLayer, TapOffload, bring_up};
use carina_sys::NetworkNamespace;

use crate::error::IpError;
use crate::prefix::IpPrefix;
use crate::settings::IpSettings;

/// Makes the interface of the settings with an MTU of `mtu` bytes.
///
/// # Errors
/// The namespace cannot be entered, or the kernel refuses the interface, an address or a route.
pub(crate) fn open(settings: &IpSettings, mtu: usize) -> Result<Tap, IpError> {
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

fn open_here(settings: &IpSettings, mtu: usize) -> Result<Tap, IpError> {
    let offload = TapOffload {
        checksum: true,
        segmentation: true,
    };
    let tap = Tap::open(&settings.tun, TapLayer::Ip, offload)?;
    let mut addresses = InterfaceAddresses::of(&settings.tun)?;
    for address in &settings.address {
        addresses.add_address(address.address, address.bits)?;
    }
    bring_up(&settings.tun, Some(mtu))?;
    let links: Vec<IpPrefix> = settings.address.iter().map(|it| it.link()).collect();
    for route in settings.route.iter().filter(|it| !links.contains(it)) {
        addresses.add_route(route.address(), route.bits())?;
    }
    Ok(tap)
}

/// The file of a namespace that is given by its name or by its path.
fn namespace_path(netns: &Path) -> PathBuf {
    Path::new(NETNS).join(netns)
}

/// Directory of the named network namespaces. A path that begins with `/` replaces it.
const NETNS: &str = "/run/netns";
