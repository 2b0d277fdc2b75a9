//! The layout of a region: the offsets of the station block and the two rings.
//!
//! ```text
//! 0                page 0: station block
//! 4096             ring from host to guest: header page, then `capacity` bytes
//! 8192 + capacity  ring from guest to host: the same
//! ```
//!
//! Both sides compute the layout from the size of the region. The copy in the region itself is only
//! for people who read a hex dump.

use carina_ring::region_bytes as ring_bytes;

use crate::hl::Side;

/// Size of the station block in bytes.
pub(super) const STATION_BYTES: usize = 4096;

/// Size of the smallest region: 64 KiB.
pub const REGION_BYTES_MIN: usize = 64 << 10;

/// Size of the largest region: 1 GiB. QEMU must find room for it in the guest's address space.
pub const REGION_BYTES_MAX: usize = 1 << 30;

/// Default size of a region: 16 MiB.
pub const REGION_BYTES_DEFAULT: usize = 16 << 20;

/// The offsets of the station block and the two rings in a region of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    region_bytes: usize,
    capacity: usize,
}

/// Error: the requested size of a region is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a region of {bytes} bytes: must be a power of two from {REGION_BYTES_MIN} to {REGION_BYTES_MAX}"
)]
pub struct RegionSizeError {
    /// The size that was requested, in bytes.
    pub bytes: usize,
}

impl Layout {
    /// Computes the layout of a region of this size.
    ///
    /// # Errors
    /// The size is not allowed.
    pub fn new(region_bytes: usize) -> Result<Layout, RegionSizeError> {
        let is_right = region_bytes.is_power_of_two()
            && (REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&region_bytes);
        if !is_right {
            return Err(RegionSizeError {
                bytes: region_bytes,
            });
        }
        // With the header pages, two rings of half the region each do not fit; two of a quarter
        // always do.
        Ok(Layout {
            region_bytes,
            capacity: region_bytes / 4,
        })
    }

    /// Returns the size of the whole region in bytes.
    pub const fn region_bytes(&self) -> usize {
        self.region_bytes
    }

    /// Returns the size of each ring's data area in bytes.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the offset in the region of the ring that `side` writes.
    pub const fn ring_from(&self, side: Side) -> usize {
        match side {
            Side::Host => STATION_BYTES,
            Side::Guest => STATION_BYTES + ring_bytes(self.capacity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_every_allowed_region_and_do_not_overlap() {
        for shift in 16..=30 {
            let layout = Layout::new(1 << shift).unwrap();
            let (h2g, g2h) = (layout.ring_from(Side::Host), layout.ring_from(Side::Guest));
            assert_eq!(h2g, STATION_BYTES);
            assert_eq!(g2h, h2g + ring_bytes(layout.capacity()));
            assert!(g2h + ring_bytes(layout.capacity()) <= layout.region_bytes());
        }
        assert_eq!(
            Layout::new(REGION_BYTES_DEFAULT).unwrap().capacity(),
            4 << 20
        );
    }

    #[test]
    fn odd_sizes_are_refused_with_the_rule() {
        for bytes in [0, 4096, 32 << 10, (16 << 20) - 4096, 2 << 30] {
            let error = Layout::new(bytes).unwrap_err();
            assert!(
                error.to_string().contains("power of two from 65536"),
                "{error}"
            );
        }
    }
}
