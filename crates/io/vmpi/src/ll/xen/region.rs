//! A region over grants: the station block has, besides what every region has, the grant references
//! of the other pages and a word by which each side shows that its process lives.
//!
//! ```text
//! 0x140  host: 1 while the host's process lives    0x1c0  guest: the same
//! 0x200  magic "CARINAXG"      0x208  generation u64, as in the xenstore
//! 0x210  region bytes u32      0x214  number of references u32
//! 0x400  grant references of pages 1, 2, ... u32 each: the rings, header page first
//! ```
//!
//! The kernel clears the byte of a process that ends, also by SIGKILL (unmap notice). The guest
//! writes everything from 0x200 before it publishes the region, and again while the link is down:
//! a host may have overwritten it, and the next host needs it. The host reads each word once.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use carina_ring::{HEADER_BYTES, RingMap, region_bytes as ring_bytes};
use carina_sys::{
    EventFd, Mapping, PAGE_BYTES, XenDomain, XenForeignPages, XenGrant, XenGrantedPages,
    XenUnmapNotice,
};

use super::RegionError;
use super::address::Address;
use super::channels::Channels;
use crate::hl::Side;
use crate::ll::attach::SILENCE_PATIENT_NS_MAX;
use crate::ll::device::{Device, Doorbells, Parts};
use crate::ll::layout::{Layout, STATION_BYTES};

/// Size of the layout of every region over grants: its rings have a quarter each. The kernel module
/// `xen_gntalloc` allows 1024 pages by default; this region takes 259.
pub(super) const REGION_BYTES: usize = 2 << 20;

/// A region that this domain granted to another one.
pub(super) struct GrantedRegion {
    /// The data plane's end.
    pub(super) device: Device<Channel>,
    /// What the other domain needs to find the region.
    pub(super) address: Address,
}

/// Grants a new region to `peer`, with an event channel that `peer` may bind.
pub(super) fn grant(
    peer: XenDomain,
    channels: &Arc<Channels>,
    generation: u64,
) -> Result<GrantedRegion, RegionError> {
    let layout = layout()?;
    let ring_pages = ring_bytes(layout.capacity()) / PAGE_BYTES;
    let pages = 1 + 2 * ring_pages;
    let granted = XenGrantedPages::allocate(peer, pages as u32)?;
    let start = granted.offset();
    let control = Mapping::shared(granted.as_fd(), start, STATION_BYTES)?;
    let (first, others) = granted.references().split_at(1);
    let port = channels.offer_to(peer)?;
    let channel = Channel {
        side: Side::Guest,
        channels: Arc::clone(channels),
        port,
        control,
        head: Some(Head {
            generation,
            references: others.to_vec(),
        }),
    };
    channel.show();
    granted.set_unmap_notice(channel.notice(start))?;
    let address = Address {
        reference: first[0],
        port,
        generation,
    };
    let ring = |from: Side| {
        let at = start + layout.ring_from(from) as u64;
        RingMap::map(granted.as_fd(), at, layout.capacity()).map(Arc::new)
    };
    let (tx, rx) = (ring(Side::Guest)?, ring(Side::Host)?);
    let station = Mapping::shared(granted.as_fd(), start, STATION_BYTES)?;
    let parts = Parts {
        station,
        tx,
        rx,
        layout,
    };
    // The kernel keeps the grants as long as they are mapped.
    drop(granted);
    let mut device = Device::from_parts(Side::Guest, parts, channel);
    device.set_silence_max(SILENCE_PATIENT_NS_MAX);
    Ok(GrantedRegion { device, address })
}

/// Maps the region that `peer` granted to this domain at `address`, and binds its event channel.
pub(super) fn map(
    peer: XenDomain,
    address: Address,
    channels: &Arc<Channels>,
) -> Result<Device<Channel>, RegionError> {
    let layout = layout()?;
    let grant = |reference| XenGrant {
        domain: peer,
        reference,
    };
    let mapped = |grants: &[XenGrant]| -> Result<(XenForeignPages, Mapping), RegionError> {
        let pages = XenForeignPages::take_up(grants)?;
        let bytes = grants.len() * PAGE_BYTES;
        let mapping = Mapping::shared(pages.as_fd(), pages.offset(), bytes);
        let mapping = mapping.map_err(|error| RegionError::Grants {
            count: grants.len(),
            error,
        })?;
        Ok((pages, mapping))
    };
    let station_grant = [grant(address.reference)];
    let (pages, control) = mapped(&station_grant)?;
    // Nothing is written before the page is known to be one of a region.
    let references = references(&control, address.generation, &layout)?;
    let ring = |from: Side| {
        let first = layout.ring_from(from) / PAGE_BYTES - 1;
        let header = HEADER_BYTES / PAGE_BYTES;
        let data = layout.capacity() / PAGE_BYTES;
        let all = &references[first..first + header + data];
        // The data twice in a row, as a ring needs it.
        let grants = all.iter().chain(&all[header..]).copied().map(grant);
        let (_, mapping) = mapped(&grants.collect::<Vec<_>>())?;
        let ring = RingMap::mirrored(mapping, layout.capacity())?;
        Ok::<_, RegionError>(Arc::new(ring))
    };
    let (tx, rx) = (ring(Side::Host)?, ring(Side::Guest)?);
    let (_, station) = mapped(&station_grant)?;
    let port = channels.bind_to(peer, address.port);
    let channel = Channel {
        side: Side::Host,
        channels: Arc::clone(channels),
        port: port.map_err(RegionError::NoChannel)?,
        control,
        head: None,
    };
    channel.show();
    pages.set_unmap_notice(channel.notice(pages.offset()))?;
    let parts = Parts {
        station,
        tx,
        rx,
        layout,
    };
    let mut device = Device::from_parts(Side::Host, parts, channel);
    device.set_silence_max(SILENCE_PATIENT_NS_MAX);
    Ok(device)
}

/// What the guest writes in front of the region for the host that maps it.
#[derive(Debug)]
struct Head {
    generation: u64,
    /// References of all pages but the first.
    references: Vec<u32>,
}

impl Head {
    fn write(&self, control: &Mapping) {
        let word = |at: usize, value: u32| {
            control
                .atomic_u32(at)
                .store(value.to_le(), Ordering::Relaxed);
        };
        for (number, reference) in self.references.iter().enumerate() {
            word(REFERENCES + 4 * number, *reference);
        }
        word(REGION_SIZE, REGION_BYTES as u32);
        word(COUNT, self.references.len() as u32);
        control
            .atomic_u64(GENERATION)
            .store(self.generation.to_le(), Ordering::Relaxed);
        control
            .atomic_u64(MAGIC_AT)
            .store(MAGIC.to_le(), Ordering::Release);
    }
}

/// Reads the head that the guest wrote, each word once, and the references behind it.
fn references(
    control: &Mapping,
    generation: u64,
    layout: &Layout,
) -> Result<Vec<u32>, RegionError> {
    let long = |at: usize| u64::from_le(control.atomic_u64(at).load(Ordering::Acquire));
    let word = |at: usize| u32::from_le(control.atomic_u32(at).load(Ordering::Relaxed));
    if long(MAGIC_AT) != MAGIC || long(GENERATION) != generation {
        return Err(RegionError::NoRegion);
    }
    let bytes = word(REGION_SIZE);
    if bytes as usize != layout.region_bytes() {
        return Err(RegionError::Size { bytes });
    }
    let count = 2 * ring_bytes(layout.capacity()) / PAGE_BYTES;
    let shown = word(COUNT);
    if shown as usize != count {
        return Err(RegionError::References { shown, count });
    }
    Ok((0..count)
        .map(|number| word(REFERENCES + 4 * number))
        .collect())
}

fn layout() -> Result<Layout, RegionError> {
    Layout::new(REGION_BYTES).map_err(|error| RegionError::Device(io::Error::other(error)))
}

/// The event channel of a region, and the words by which the processes show that they live.
/// Dropping it closes the channel.
#[derive(Debug)]
pub(super) struct Channel {
    side: Side,
    channels: Arc<Channels>,
    port: u32,
    /// The station block.
    control: Mapping,
    /// What this side keeps in front of the region, if it is the guest.
    head: Option<Head>,
}

impl Channel {
    /// What the kernel does for the peer when this process ends. `station` is the offset of the
    /// station block in the device's file.
    fn notice(&self, station: u64) -> XenUnmapNotice {
        XenUnmapNotice {
            byte: station + LIVES[self.side as usize] as u64,
            port: self.port,
        }
    }
}

impl Doorbells for Channel {
    fn ring(&self, _peer_doorbell: u32) {
        self.channels.ring(self.port);
    }

    fn can_ring(&self) -> bool {
        true
    }

    fn own(&self) -> Option<&EventFd> {
        // The device around this one waits for the channel.
        None
    }

    fn clear_signal(&mut self) {
        self.channels.clear();
    }

    fn can_be_rung(&self) -> bool {
        true
    }

    fn doorbell(&self) -> u32 {
        0
    }

    fn is_attached(&self) -> bool {
        // The kernel clears one byte; a hostile peer may have set the others of the word.
        let peer = LIVES[self.side.peer() as usize];
        self.control.atomic_u8(peer).load(Ordering::Acquire) != 0
    }

    fn show(&self) {
        if let Some(head) = &self.head {
            head.write(&self.control);
        }
        let own = LIVES[self.side as usize];
        let lives = self.control.atomic_u32(own);
        lives.store(1_u32.to_le(), Ordering::Release);
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let own = LIVES[self.side as usize];
        self.control.atomic_u32(own).store(0, Ordering::Release);
        self.channels.ring(self.port);
        self.channels.close(self.port);
    }
}

/// Where each side shows that its process lives.
const LIVES: [usize; 2] = [0x140, 0x1c0];
const MAGIC_AT: usize = 0x200;
const GENERATION: usize = 0x208;
const REGION_SIZE: usize = 0x210;
const COUNT: usize = 0x214;
const REFERENCES: usize = 0x400;
const MAGIC: u64 = u64::from_le_bytes(*b"CARINAXG");

const _: () = {
    // All references fit the station block.
    let pages = 2 * ring_bytes(REGION_BYTES / 4) / PAGE_BYTES;
    assert!(REFERENCES + 4 * pages <= STATION_BYTES);
};

#[cfg(test)]
mod tests {
    use carina_sys::Memory;

    use super::*;

    fn station() -> (Mapping, Layout) {
        let memory = Memory::anonymous("station", STATION_BYTES).unwrap();
        let map = memory.map().unwrap();
        let head = Head {
            generation: 5,
            references: (1000..1258).collect(),
        };
        head.write(&map);
        (map, layout().unwrap())
    }

    #[test]
    fn references_are_those_that_the_guest_wrote() {
        let (map, layout) = station();
        let found = references(&map, 5, &layout).unwrap();
        assert_eq!(found, (1000..1258).collect::<Vec<u32>>());
    }

    #[test]
    fn page_that_is_no_region_is_refused_with_what_is_wrong() {
        let (map, layout) = station();
        let refusal = |generation| {
            references(&map, generation, &layout)
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(6).contains("no region"), "{}", refusal(6));
        let set = |at, value: u32| map.atomic_u32(at).store(value.to_le(), Ordering::Relaxed);
        set(COUNT, u32::MAX);
        assert!(refusal(5).contains("4294967295"), "{}", refusal(5));
        set(REGION_SIZE, 4096);
        assert!(refusal(5).contains("4096 bytes"), "{}", refusal(5));
        map.atomic_u64(MAGIC_AT).store(0, Ordering::Relaxed);
        assert!(refusal(5).contains("no region"), "{}", refusal(5));
    }
}
