//! The guest's side: it grants a region to the host's domain and keeps its address in the xenstore.

use std::io;
use std::time::Duration;

use carina_sys::{XenDomain, monotonic_ns};

use super::address::Address;
use super::channels::end_lost;
use super::device::{Change, Feed, XenDevice};
use super::region::{GrantedRegion, grant};
use super::store::{Store, StoreError};
use super::{RegionError, node_for};
use crate::hl::Side;
use crate::ll::VmpiImpl;

/// Opens the guest's side of a link to the node in the domain `host`, usually
/// [`DOM0`](super::DOM0). The region is granted and published in the background, and again when the
/// xenstore has lost it, as after the domain was restored.
///
/// # Errors
/// This system is no Xen domain, or lacks the modules `xen_gntalloc` or `xen_evtchn`.
pub fn open_guest(host: XenDomain) -> io::Result<Box<dyn VmpiImpl + Send>> {
    if !super::devices_exist() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no Xen domain with the modules xen_gntalloc and xen_evtchn",
        ));
    }
    let device = XenDevice::start(Side::Guest, move |feed| serve(feed, host))?;
    Ok(Box::new(device))
}

/// Why the region is not published.
#[derive(Debug, thiserror::Error)]
enum GuestError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error("the event channels: {0}")]
    Channels(#[from] io::Error),
}

/// The region that the xenstore should have.
#[derive(Debug, Clone, Copy)]
struct Published {
    address: Address,
    /// The number of this domain when the region was published.
    domain: XenDomain,
}

fn serve(mut feed: Feed, host: XenDomain) {
    let mut published = None;
    loop {
        // An error ends the connection to the xenstore; the next round opens another one.
        if let Err(error) = publish(&mut feed, host, &mut published)
            && published.is_none()
        {
            feed.send(Change::Trouble(error.to_string()));
        }
        if stops(&feed, AGAIN) {
            break;
        }
    }
    if published.is_some()
        && let Ok(mut store) = Store::open()
    {
        let _ = store.remove(&node_for(host));
    }
}

/// Publishes a region unless the xenstore has it. Returns when the device is dropped.
fn publish(
    feed: &mut Feed,
    host: XenDomain,
    published: &mut Option<Published>,
) -> Result<(), GuestError> {
    let mut store = Store::open()?;
    let node = node_for(host);
    loop {
        let shown = store.read(&node)?;
        let is_shown = published.is_some_and(|past| shown == Some(past.address.to_string()));
        if !is_shown {
            let domain = store.own_domain()?;
            // The one before frees its grants first.
            if let Some(past) = *published {
                let former = feed.renew()?;
                *published = None;
                // An error costs a descriptor, and the link comes up without it.
                let _ = end_lost(former, past.address.port, host, domain != past.domain);
            }
            let GrantedRegion { device, address } = grant(host, &feed.channels, random())?;
            feed.send(Change::Attach(Box::new(device)));
            store.write_for(&node, &address.to_string(), domain, host)?;
            *published = Some(Published { address, domain });
        }
        if stops(feed, LOOK) {
            return Ok(());
        }
    }
}

/// Waits until the device is dropped, at most for `limit`. Returns whether it was dropped.
pub(super) fn stops(feed: &Feed, limit: Duration) -> bool {
    feed.stop
        .wait(Some(limit.as_nanos() as u64))
        .unwrap_or(true)
}

/// A number that no other region of this domain has had.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::NONBLOCK;
    match rustix::rand::getrandom(&mut bytes[..], flags) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => monotonic_ns() ^ u64::from(std::process::id()) << 40,
    }
}

/// Interval at which the guest looks whether the xenstore still has its region.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after an error.
const AGAIN: Duration = Duration::from_secs(1);
