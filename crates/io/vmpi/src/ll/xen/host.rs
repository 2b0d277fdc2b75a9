//! The host's side: it finds a domain by its name, and maps the region that the domain granted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use carina_sys::{Epoll, EventFd, Interest, XenDomain};

use super::address::{Address, AddressError};
use super::device::{Change, Feed, XenDevice};
use super::region::map;
use super::store::{Store, StoreError};
use super::{REGION_BYTES, RegionError, node_for};
use crate::hl::Side;
use crate::ll::VmpiImpl;

/// The host's end of the VMPI of one Xen domain. The domain may start later, end and start again:
/// the port finds it by its name.
#[derive(Debug)]
pub struct HostPort {
    domain: String,
    /// A descriptor that never becomes readable, because the thread of the device does all work.
    quiet: EventFd,
}

impl HostPort {
    /// Makes the port for the domain of this name, or of this number.
    ///
    /// # Errors
    /// `InvalidInput`: the size is not [`REGION_BYTES`]. `NotFound`: this system is no Xen domain,
    /// or lacks modules.
    pub fn open(domain: &str, region_bytes: usize) -> io::Result<HostPort> {
        if region_bytes != REGION_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a region over Xen has {REGION_BYTES} bytes, not {region_bytes}"),
            ));
        }
        if !Path::new(GNTDEV).exists() || !Path::new(EVTCHN).exists() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no Xen domain with the modules xen_gntdev and xen_evtchn",
            ));
        }
        Ok(HostPort {
            domain: domain.to_owned(),
            quiet: EventFd::new()?,
        })
    }

    /// Opens the data plane's end of the port. Only one may exist at a time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn device(&self) -> io::Result<Box<dyn VmpiImpl + Send>> {
        let name = self.domain.clone();
        let device = XenDevice::start(Side::Host, move |feed| serve(&feed, &name))?;
        Ok(Box::new(device))
    }

    /// The number of the domain, if it runs.
    #[must_use]
    pub fn domain(&self) -> Option<XenDomain> {
        let mut store = Store::open().ok()?;
        find(&mut store, &self.domain).ok().flatten()
    }

    /// The thread of the device handles all events.
    pub(crate) fn on_readable(&mut self) {}

    /// See [`HostPort::on_readable`].
    pub(crate) fn on_tick(&mut self, _now_ns: u64) {}

    /// A domain of Xen has no QEMU.
    pub(crate) fn qemu_pid(&self) -> Option<i32> {
        None
    }

    /// The device through which the memory is mapped, in place of a socket.
    pub(crate) fn qemu_socket(&self) -> &Path {
        Path::new(GNTDEV)
    }

    /// Nothing of a port is left once its device is dropped.
    pub(crate) fn destroy(self) {}

    /// Size of the region in bytes.
    #[must_use]
    pub fn region_bytes(&self) -> usize {
        REGION_BYTES
    }
}

impl AsFd for HostPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.quiet.as_fd()
    }
}

/// Why no region is mapped.
#[derive(Debug, thiserror::Error)]
enum HostError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("the xenstore: {0}")]
    Wait(#[from] io::Error),
}

fn serve(feed: &Feed, name: &str) {
    let mut attached = None;
    loop {
        // An error ends the connection to the xenstore; the next round opens another one.
        match follow(feed, name, &mut attached) {
            Ok(()) => return,
            Err(error) if attached.is_none() => feed.send(Change::Trouble(error.to_string())),
            Err(_) => {}
        }
        if feed
            .stop
            .wait(Some(AGAIN.as_nanos() as u64))
            .unwrap_or(true)
        {
            return;
        }
    }
}

/// Attaches each region that the domain publishes. Returns when the device is dropped.
fn follow(
    feed: &Feed,
    name: &str,
    attached: &mut Option<(XenDomain, String)>,
) -> Result<(), HostError> {
    let mut store = Store::open()?;
    let own = store.own_domain()?;
    // Domains appear and end.
    store.watch("@introduceDomain", DOMAINS)?;
    store.watch("@releaseDomain", DOMAINS)?;
    let epoll = Epoll::new()?;
    epoll.add(&store, 0, Interest::Read)?;
    epoll.add(&feed.stop, 1, Interest::Read)?;
    let mut watched: Option<XenDomain> = None;
    loop {
        let domain = find(&mut store, name)?;
        if let Some(domain) = domain
            && watched != Some(domain)
        {
            if let Some(past) = watched.replace(domain) {
                store.unwatch(&path_of(past, own), REGION)?;
            }
            store.watch(&path_of(domain, own), REGION)?;
        }
        let shown = match domain {
            Some(domain) => store
                .read(&path_of(domain, own))?
                .map(|text| (domain, text)),
            None => None,
        };
        if shown != *attached {
            if attached.take().is_some() {
                feed.send(Change::Detach);
            }
            if let Some((domain, text)) = &shown
                && !text.is_empty()
            {
                // What cannot be mapped is tried again when the guest writes another address, and
                // after a pause.
                let address: Address = text.parse()?;
                let device = map(*domain, address, &feed.channels)?;
                feed.send(Change::Attach(Box::new(device)));
                *attached = shown;
            }
        }
        if feed
            .stop
            .wait(Some(PAUSE.as_nanos() as u64))
            .unwrap_or(true)
        {
            return Ok(());
        }
        if store.take_fired()?.is_empty() {
            epoll.wait(&mut Vec::new(), Some(LOOK.as_nanos() as u64))?;
            store.take_fired()?;
        }
    }
}

/// The number of the domain with this name, or the domain of this number, if it runs.
fn find(store: &mut Store, name: &str) -> Result<Option<XenDomain>, StoreError> {
    for domain in store.list(DOMAINS_PATH)? {
        let Ok(number) = domain.parse::<XenDomain>() else {
            continue;
        };
        let is_named = domain == name
            || store
                .read(&format!("{DOMAINS_PATH}/{domain}/name"))?
                .as_deref()
                == Some(name);
        if is_named {
            return Ok(Some(number));
        }
    }
    // A domain other than Dom0 may not list all, but may know a number.
    match name.parse::<XenDomain>() {
        Ok(number) => {
            let path = format!("{DOMAINS_PATH}/{number}/data/carina/vmpi");
            Ok(store.read(&path)?.map(|_| number))
        }
        Err(_) => Ok(None),
    }
}

fn path_of(domain: XenDomain, own: XenDomain) -> String {
    format!("{DOMAINS_PATH}/{domain}/{}", node_for(own))
}

const DOMAINS_PATH: &str = "/local/domain";
const DOMAINS: &str = "domains";
const REGION: &str = "region";
const GNTDEV: &str = "/dev/xen/gntdev";
const EVTCHN: &str = "/dev/xen/evtchn";
/// Shortest time between two looks at the xenstore: a domain that publishes without end costs a
/// few requests a second.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time between two looks, if no watch fires.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after an error.
const AGAIN: Duration = Duration::from_secs(1);
