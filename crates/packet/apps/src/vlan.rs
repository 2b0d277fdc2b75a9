//! VLAN tags in the bytes of frames. (IEEE 802.1Q §9.6)

use carina_frame::Frame;
use carina_wire::ether::{TPID_CUSTOMER, TPID_PROVIDER, VLAN_MAX};

/// The four bytes of a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag([u8; 4]);

/// Why a tag is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagError {
    /// The VLAN is out of range.
    #[error("vlan = {0}: must be 0 to {VLAN_MAX}")]
    Vlan(u16),
    /// The priority is out of range.
    #[error("priority = {0}: must be 0 to 7")]
    Priority(u8),
    /// The type (TPID) is unknown.
    #[error("tpid = {0:#x}: must be 0x8100 or 0x88a8")]
    Tpid(u16),
}

impl Tag {
    /// A tag with this type, VLAN and priority.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn new(tpid: u16, vlan: u16, priority: u8) -> Result<Tag, TagError> {
        if ![TPID_CUSTOMER, TPID_PROVIDER].contains(&tpid) {
            return Err(TagError::Tpid(tpid));
        }
        if vlan > VLAN_MAX {
            return Err(TagError::Vlan(vlan));
        }
        if priority > 7 {
            return Err(TagError::Priority(priority));
        }
        let ([a, b], [c, d]) = (
            tpid.to_be_bytes(),
            (u16::from(priority) << 13 | vlan).to_be_bytes(),
        );
        Ok(Tag([a, b, c, d]))
    }
}

/// Inserts a tag behind the MAC addresses. Returns `false`, and leaves the frame unchanged, if the
/// frame is too short or lacks headroom.
#[must_use]
#[inline]
pub fn push_tag(frame: &mut Frame, tag: Tag) -> bool {
    let Some(addresses) = frame.bytes().first_chunk::<12>().copied() else {
        return false;
    };
    if !frame.prepend(&[0; 4]) {
        return false;
    }
    let bytes = frame.bytes_mut();
    bytes[..12].copy_from_slice(&addresses);
    bytes[12..16].copy_from_slice(&tag.0);
    true
}

/// The VLAN of the outermost tag, if it has this type.
#[must_use]
#[inline]
pub fn vlan_of(frame: &[u8], tpid: u16) -> Option<u16> {
    let head = frame.first_chunk::<18>()?;
    let (found, control) = (
        u16::from_be_bytes([head[12], head[13]]),
        u16::from_be_bytes([head[14], head[15]]),
    );
    (found == tpid).then_some(control & 0x0fff)
}

/// Removes the outermost tag. The frame must have one, as [`vlan_of`] tells.
#[inline]
pub fn pop_tag(frame: &mut Frame) {
    let bytes = frame.bytes_mut();
    if bytes.len() >= 16 {
        bytes.copy_within(..12, 4);
        frame.advance(4);
    }
}
