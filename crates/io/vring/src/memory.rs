//! The memory that a peer shares: a table of regions.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use carina_sys::Mapping;

/// Largest number of regions that one peer may share.
pub const REGIONS_MAX: usize = 64;

/// A range of guest memory that is mapped in this process.
#[derive(Clone)]
pub struct Region {
    /// First address in the guest.
    guest: u64,
    /// First address in the process that manages the guest. vhost-user gives the addresses of rings
    /// in this address space.
    user: u64,
    len: u64,
    host: NonNull<u8>,
    mapping: Arc<Mapping>,
}

// SAFETY: the memory behind `host` is the mapping's, which is `Send` and `Sync`.
unsafe impl Send for Region {}
// SAFETY: as above; it is only accessed by atomics and by copies that may tear.
unsafe impl Sync for Region {}

/// Why a table of regions cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A region is empty, wraps around the address space, or is longer than its mapping.
    #[error("region of {len} bytes at {guest:#x}: empty, wrapping, or longer than what is mapped")]
    Range {
        /// First address in the guest.
        guest: u64,
        /// Length of the region in bytes.
        len: u64,
    },
    /// Two regions share addresses.
    #[error("regions at {first:#x} and {second:#x} overlap")]
    Overlap {
        /// First address of one of the two regions.
        first: u64,
        /// First address of the other region.
        second: u64,
    },
    /// There are more than [`REGIONS_MAX`] regions.
    #[error("{0} memory regions; at most {REGIONS_MAX} are possible")]
    TooMany(usize),
}

impl Region {
    /// Describes a region of `len` bytes at `offset` of a mapping. `guest` and `user` are its first
    /// address in the guest and in the process that manages the guest.
    ///
    /// # Errors
    /// The region is empty, wraps around the address space, or is not within the mapping.
    pub fn new(
        mapping: Arc<Mapping>,
        offset: usize,
        guest: u64,
        user: u64,
        len: u64,
    ) -> Result<Region, MemoryError> {
        let bad = MemoryError::Range { guest, len };
        let within = mapping.len().checked_sub(offset).ok_or(bad)?;
        let wraps = guest.checked_add(len).is_none() || user.checked_add(len).is_none();
        if len == 0 || len > within as u64 || wraps {
            return Err(bad);
        }
        // SAFETY: `offset` is at most the mapping's length, and its address is not null.
        let host = unsafe { NonNull::new_unchecked(mapping.as_ptr().add(offset)) };
        Ok(Region {
            guest,
            user,
            len,
            host,
            mapping,
        })
    }

    /// Returns the first address of the region in the guest.
    #[must_use]
    pub fn guest(&self) -> u64 {
        self.guest
    }

    /// Returns the first address of the region in the process that manages the guest, such as QEMU.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.user
    }

    /// Returns the size of the region in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn at(&self, first: u64, address: u64, len: u64) -> Option<NonNull<u8>> {
        let offset = address.wrapping_sub(first);
        if offset >= self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: the offset is within the region, which is within its mapping.
        Some(unsafe { self.host.add(offset as usize) })
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("guest", &format_args!("{:#x}", self.guest))
            .field("user", &format_args!("{:#x}", self.user))
            .field("len", &self.len)
            .field("mapped", &self.mapping.len())
            .finish()
    }
}

/// The memory that one peer shares, as a table of regions sorted by address. Clones share the
/// table.
#[derive(Clone, Debug)]
pub struct GuestMemory {
    regions: Arc<[Region]>,
}

impl GuestMemory {
    /// Creates a table of regions.
    ///
    /// # Errors
    /// There are too many regions, or two of them overlap, in the guest or in the process that
    /// manages it.
    pub fn new(mut regions: Vec<Region>) -> Result<GuestMemory, MemoryError> {
        if regions.len() > REGIONS_MAX {
            return Err(MemoryError::TooMany(regions.len()));
        }
        for first_of in [Region::user, Region::guest] {
            regions.sort_by_key(first_of);
            for pair in regions.windows(2) {
                // No region wraps, so the sum does not wrap either.
                if first_of(&pair[0]) + pair[0].len > first_of(&pair[1]) {
                    return Err(MemoryError::Overlap {
                        first: first_of(&pair[0]),
                        second: first_of(&pair[1]),
                    });
                }
            }
        }
        Ok(GuestMemory {
            regions: regions.into(),
        })
    }

    /// Returns the regions of the table.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Whether a page of the memory is lost ([`Mapping::is_lost`]): what is read there is then not
    /// what the peer wrote.
    #[must_use]
    #[inline]
    pub fn is_lost(&self) -> bool {
        carina_sys::lost_pages() > 0 && self.has_lost_page()
    }

    #[cold]
    fn has_lost_page(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_lost())
    }

    /// Translates a guest address to an address in this process, if all `len` bytes are in one
    /// region. `last` is the index of the region that is tried first; the call sets it to the
    /// region that was found.
    ///
    /// The result is valid as long as the table lives. Other processes may write there at any time.
    #[must_use]
    #[inline]
    pub fn guest(&self, address: u64, len: u64, last: &mut usize) -> Option<NonNull<u8>> {
        if let Some(region) = self.regions.get(*last)
            && let Some(host) = region.at(region.guest, address, len)
        {
            return Some(host);
        }
        self.search(address, len, last)
    }

    #[cold]
    fn search(&self, address: u64, len: u64, last: &mut usize) -> Option<NonNull<u8>> {
        let behind = self
            .regions
            .partition_point(|region| region.guest <= address);
        let at = behind.checked_sub(1)?;
        let region = &self.regions[at];
        let host = region.at(region.guest, address, len)?;
        *last = at;
        Some(host)
    }

    /// Number of bytes from `address` to the end of its region; 0 if there is no such region.
    pub(crate) fn bytes_from(&self, address: u64) -> u64 {
        let found = self
            .regions
            .iter()
            .find(|region| region.at(region.guest, address, 1).is_some());
        found.map_or(0, |region| region.len - (address - region.guest))
    }

    /// Like [`GuestMemory::guest`], for an address in the process that manages the guest. Also
    /// returns the guest address. `None` if the range is not within one region. It is too slow for
    /// the data path.
    #[must_use]
    pub fn user(&self, address: u64, len: u64) -> Option<(NonNull<u8>, u64)> {
        self.regions.iter().find_map(|region| {
            let host = region.at(region.user, address, len)?;
            Some((host, region.guest + (address - region.user)))
        })
    }
}

#[cfg(test)]
mod tests {
    use carina_sys::Memory;

    use super::*;

    fn mapping() -> Arc<Mapping> {
        Arc::new(Memory::anonymous("regions", 8192).unwrap().map().unwrap())
    }

    fn region(guest: u64, user: u64, len: u64) -> Region {
        Region::new(mapping(), 0, guest, user, len).unwrap()
    }

    #[test]
    fn addresses_are_found_in_any_order() {
        let table = GuestMemory::new(vec![
            region(0x10_0000, 0x7000, 4096),
            region(0x1000, 0x9000, 8192),
        ])
        .unwrap();
        let mut last = 0;
        let first = table.guest(0x1000, 8192, &mut last).unwrap();
        assert_eq!(last, 0);
        let end = table.guest(0x2fff, 1, &mut last).unwrap();
        assert_eq!(end.addr().get(), first.addr().get() + 8191);
        assert!(table.guest(0x10_0ff0, 16, &mut last).is_some());
        assert_eq!(last, 1);
        assert!(table.guest(0x1010, 16, &mut last).is_some());
        for (address, len) in [
            (0x0fff, 1),
            (0x3000, 1),
            (0x2fff, 2),
            (0x10_0ff0, 17),
            (u64::MAX, 1),
            (0x1000, u64::MAX),
        ] {
            assert!(table.guest(address, len, &mut last).is_none(), "{address}");
        }
        assert_eq!(table.user(0x7010, 16).unwrap().1, 0x10_0010);
        assert!(table.user(0x7010, 4096).is_none());
        assert_eq!(table.bytes_from(0x2ff0), 16);
        assert_eq!(table.bytes_from(0x3000), 0);
    }

    #[test]
    fn tables_that_lie_are_refused() {
        let refused = |guest, len| Region::new(mapping(), 4096, guest, 0, len).unwrap_err();
        for (guest, len) in [(0, 0), (0, 4097), (u64::MAX - 100, 4096)] {
            assert_eq!(refused(guest, len), MemoryError::Range { guest, len });
        }
        assert!(Region::new(mapping(), 9000, 0, 0, 1).is_err());
        assert!(Region::new(mapping(), 0, 0, u64::MAX - 5, 4096).is_err());
        let overlap = GuestMemory::new(vec![region(0, 0, 8192), region(8191, 10_000, 10)]);
        assert!(matches!(overlap, Err(MemoryError::Overlap { .. })));
        let overlap = GuestMemory::new(vec![region(0, 0, 8192), region(10_000, 5, 10)]);
        assert!(matches!(overlap, Err(MemoryError::Overlap { .. })));
        let many = (0..65).map(|n| region(n * 8192, n * 8192, 8192)).collect();
        assert_eq!(
            GuestMemory::new(many).unwrap_err(),
            MemoryError::TooMany(65)
        );
    }
}
