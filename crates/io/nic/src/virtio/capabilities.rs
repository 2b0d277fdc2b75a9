//! Register windows of a virtio device in its BARs, found by its PCI capabilities. (VIRTIO 1.2
//! §4.1.4)

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use carina_sys::Mapping;

use crate::registers::Access;

/// Finds and maps the register windows of a device.
pub(super) struct Finder<'a> {
    access: Access<'a>,
    address: &'a str,
    config: Vec<u8>,
    bars: [Option<Arc<Mapping>>; 6],
}

impl<'a> Finder<'a> {
    pub(super) fn new(address: &'a str, access: Access<'a>) -> io::Result<Finder<'a>> {
        Ok(Finder {
            config: access.config()?,
            access,
            address,
            bars: Default::default(),
        })
    }

    /// The register window of a kind, of at least `bytes` bytes, and its location. `name` appears
    /// in errors.
    pub(super) fn registers(
        &mut self,
        kind: u8,
        bytes: usize,
        name: &str,
    ) -> io::Result<(Window, Place)> {
        let address = self.address;
        let missing = || {
            bad(
                address,
                &format!(
                    "the device has no virtio capability for its \
            {name}"
                ),
            )
        };
        let place = Capabilities::of(&self.config).find(kind);
        let place = place.ok_or_else(missing)?;
        let known = self.bars.get_mut(usize::from(place.bar));
        let known = known.ok_or_else(missing)?;
        let bar = match known {
            Some(bar) => Arc::clone(bar),
            None => Arc::clone(known.insert(Arc::new(self.access.bar(place.bar)?))),
        };
        let (offset, len) = (place.offset as usize, place.len as usize);
        if offset > bar.len() || len > bar.len() - offset || len < bytes {
            let what = format!("its {name} does not fit into BAR {}", place.bar);
            return Err(bad(address, &what));
        }
        Ok((Window { bar, offset, len }, place))
    }
}

/// The error of a device that does not meet a requirement.
pub(super) fn bad(address: &str, what: &str) -> io::Error {
    let text = format!("PCI device {address}: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A register window of a device, in a mapped BAR.
#[derive(Clone, Debug)]
pub(super) struct Window {
    bar: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Window {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, offset: usize, bytes: usize) -> usize {
        assert!(
            offset <= self.len && bytes <= self.len - offset,
            "register {offset:#x} of {:#x} bytes",
            self.len
        );
        self.offset + offset
    }

    pub(super) fn read_u8(&self, at: usize) -> u8 {
        self.bar.atomic_u8(self.at(at, 1)).load(Ordering::Acquire)
    }

    pub(super) fn write_u8(&self, at: usize, value: u8) {
        let to = self.bar.atomic_u8(self.at(at, 1));
        to.store(value, Ordering::Release);
    }

    pub(super) fn read_u16(&self, at: usize) -> u16 {
        let from = self.bar.atomic_u16(self.at(at, 2));
        u16::from_le(from.load(Ordering::Acquire))
    }

    pub(super) fn write_u16(&self, at: usize, value: u16) {
        let to = self.bar.atomic_u16(self.at(at, 2));
        to.store(value.to_le(), Ordering::Release);
    }

    pub(super) fn read_u32(&self, at: usize) -> u32 {
        let from = self.bar.atomic_u32(self.at(at, 4));
        u32::from_le(from.load(Ordering::Acquire))
    }

    pub(super) fn write_u32(&self, at: usize, value: u32) {
        let to = self.bar.atomic_u32(self.at(at, 4));
        to.store(value.to_le(), Ordering::Release);
    }

    /// Written in two halves, the lower first, as VIRTIO 1.2 §4.1.3.1 requires.
    pub(super) fn write_u64(&self, at: usize, value: u64) {
        self.write_u32(at, value as u32);
        self.write_u32(at + 4, (value >> 32) as u32);
    }
}

// Kinds of virtio capabilities. (VIRTIO 1.2 §4.1.4)
pub(super) const COMMON: u8 = 1;
pub(super) const NOTIFY: u8 = 2;
pub(super) const ISR: u8 = 3;
pub(super) const SPECIFIC: u8 = 4;

/// The capability list in a device's configuration space.
pub(super) struct Capabilities<'a> {
    config: &'a [u8],
}

/// Location of a register window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    bar: u8,
    offset: u32,
    len: u32,
    /// Factor that turns a ring's notification offset into bytes; only the notification window
    /// has one.
    pub(super) multiplier: u32,
}

impl Capabilities<'_> {
    pub(super) fn of(config: &[u8]) -> Capabilities<'_> {
        Capabilities { config }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.config.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.config.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The location in the first virtio capability of this kind.
    pub(super) fn find(&self, kind: u8) -> Option<Place> {
        const FIRST: usize = 0x34;
        const VENDOR: u8 = 9;
        let mut at = usize::from(self.byte(FIRST)? & !3);
        // A configuration space has room for at most this many capabilities, so a circular list
        // ends too.
        for _ in 0..48 {
            if at < 0x40 {
                return None;
            }
            if self.byte(at)? == VENDOR && self.byte(at + 3)? == kind {
                return Some(Place {
                    bar: self.byte(at + 4)?,
                    offset: self.word(at + 8)?,
                    len: self.word(at + 12)?,
                    multiplier: match kind {
                        NOTIFY => self.word(at + 16)?,
                        _ => 0,
                    },
                });
            }
            at = usize::from(self.byte(at + 1)? & !3);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found_and_loops_end() {
        let mut config = vec![0; 256];
        config[0x34] = 0x40;
        config[0x40..0x44].copy_from_slice(&[0x11, 0x50, 0, 0]);
        config[0x50..0x56].copy_from_slice(&[9, 0x40, 20, NOTIFY, 4, 0]);
        config[0x58..0x64].copy_from_slice(&[0, 0x30, 0, 0, 0, 0x10, 0, 0, 4, 0, 0, 0]);
        let capabilities = Capabilities::of(&config);
        let place = Place {
            bar: 4,
            offset: 0x3000,
            len: 0x1000,
            multiplier: 4,
        };
        assert_eq!(capabilities.find(NOTIFY), Some(place));
        assert_eq!(capabilities.find(COMMON), None);
        assert_eq!(Capabilities::of(&config[..0x52]).find(NOTIFY), None);
        assert_eq!(Capabilities::of(&[]).find(COMMON), None);
    }
}
