//! Bare rings in memory that one domain of Xen grants to another: the upper limit of what memory of
//! another domain achieves.
//!
//! ```text
//! page 0     grant references of the following pages, u32 each, in the order of the processor
//! page 1     header, then the data of the ring from the granting domain
//! ...        header, then the data of the ring to the granting domain
//! ```

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use carina_ring::bare::{BARE_LENGTH_BYTES, BareReceiver, BareSender, bare_region_bytes};
use carina_sys::{Mapping, PAGE_BYTES, XenDomain, XenForeignPages, XenGrant, XenGrantedPages};

use super::bare::BareTransport;
use super::error::{Attempt, TransportError};

/// Bytes of each ring: those of a ring of VMPI over grants. The kernel module `xen_gntalloc` allows
/// 1024 pages at once by default.
const CAPACITY: usize = 512 << 10;
/// Pages of the data of a ring.
const DATA_PAGES: usize = CAPACITY / PAGE_BYTES;
/// Pages of a ring, with its header.
const RING_PAGES: usize = bare_region_bytes(CAPACITY) / PAGE_BYTES;
/// Longest SDU that fits into a ring, in bytes.
pub const GRANTED_SDU_MAX: u64 = (CAPACITY - BARE_LENGTH_BYTES) as u64;

/// Grants two new rings to the domain `peer`. Returns this domain's end, and the grant reference by
/// which [`map`] finds the rings.
///
/// # Errors
/// This system is no domain with the module `xen_gntalloc`, or the kernel refuses.
pub(crate) fn grant(peer: XenDomain) -> Result<(BareTransport, u32), TransportError> {
    let pages = 1 + 2 * RING_PAGES;
    let granted = XenGrantedPages::allocate(peer, pages as u32);
    let granted = granted.attempt("granting memory to another domain")?;
    let start = granted.offset();
    let list = Mapping::shared(granted.as_fd(), start, PAGE_BYTES);
    let list = list.attempt("mapping granted memory")?;
    for (number, reference) in granted.references()[1..].iter().enumerate() {
        let word = list.atomic_u32(4 * number);
        word.store(*reference, Ordering::Relaxed);
    }
    let ring = |first: usize| {
        let at = start + (first * PAGE_BYTES) as u64;
        let mapped = Mapping::mirrored(granted.as_fd(), at, PAGE_BYTES, CAPACITY);
        mapped.attempt("mapping granted memory")
    };
    let sender = BareSender::over(ring(1)?, CAPACITY);
    let receiver = BareReceiver::over(ring(1 + RING_PAGES)?, CAPACITY);
    let (sender, receiver) = (sender.attempt(OVER)?, receiver.attempt(OVER)?);
    // The kernel keeps a grant as long as its page is mapped, so the list stays mapped, too.
    let rings = BareTransport::over(sender, receiver, Some(list));
    Ok((rings, granted.references()[0]))
}

/// Maps the rings that the domain `peer` granted, and whose list has the grant `reference`.
///
/// # Errors
/// This system is no domain with the module `xen_gntdev`, or `peer` has not granted the memory.
pub(crate) fn map(peer: XenDomain, reference: u32) -> Result<BareTransport, TransportError> {
    let mapped = |references: &[u32]| {
        let grant = |reference: &u32| XenGrant {
            domain: peer,
            reference: *reference,
        };
        let grants: Vec<XenGrant> = references.iter().map(grant).collect();
        let pages = XenForeignPages::take_up(&grants).attempt("asking for granted memory")?;
        let bytes = grants.len() * PAGE_BYTES;
        Mapping::shared(pages.as_fd(), pages.offset(), bytes).attempt("mapping granted memory")
    };
    let list = mapped(&[reference])?;
    let references: Vec<u32> = (0..2 * RING_PAGES)
        .map(|number| list.atomic_u32(4 * number).load(Ordering::Relaxed))
        .collect();
    let ring = |first: usize| {
        let mut pages = references[first..first + RING_PAGES].to_vec();
        // The data twice in a row, as a ring needs it.
        pages.extend_from_within(RING_PAGES - DATA_PAGES..);
        mapped(&pages)
    };
    let receiver = BareReceiver::over(ring(0)?, CAPACITY).attempt(OVER)?;
    let sender = BareSender::over(ring(RING_PAGES)?, CAPACITY).attempt(OVER)?;
    Ok(BareTransport::over(sender, receiver, None))
}

const OVER: &str = "making a ring of granted memory";

const _: () = {
    // All references fit the first page.
    assert!(4 * 2 * RING_PAGES <= PAGE_BYTES);
};
