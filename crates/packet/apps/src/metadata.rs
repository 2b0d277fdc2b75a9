//! Completes or clears the metadata of frames whose outer headers change.

use carina_frame::Frame;
use carina_wire::ether::TPID_CUSTOMER;
use carina_wire::inet::checksum;

use crate::vlan::{Tag, push_tag};

/// Applies a frame's pending metadata to its bytes, so that the frame can become the payload of a
/// tunnel: computes a missing checksum, inserts the VLAN tag, and clears the metadata. Returns
/// `false` if the frame's segmentation is still pending, or if there is no room for the tag.
#[must_use]
#[inline]
pub fn complete(frame: &mut Frame) -> bool {
    !frame.has_metadata() || complete_metadata(frame)
}

#[cold]
fn complete_metadata(frame: &mut Frame) -> bool {
    if frame.segmentation().is_some() {
        return false;
    }
    if let Some(pending) = frame.checksum() {
        let bytes = frame.bytes_mut();
        let place = usize::from(pending.offset);
        if let Some(summed) = bytes.get_mut(usize::from(pending.start)..)
            && place + 2 <= summed.len()
        {
            // The field holds the sum of the pseudo header, so it is part of the sum.
            let sum = match checksum(summed, 0) {
                0 => 0xffff,
                sum => sum,
            };
            summed[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    if let Some(control) = frame.vlan() {
        let Ok(tag) = Tag::new(TPID_CUSTOMER, control & 0x0fff, (control >> 13) as u8) else {
            return false;
        };
        if !push_tag(frame, tag) {
            return false;
        }
    }
    forget(frame);
    true
}

/// Clears the metadata of a frame whose outer headers were removed.
#[inline]
pub fn forget(frame: &mut Frame) {
    if frame.has_metadata() {
        frame.set_metadata(&carina_frame::Metadata::default());
    }
}
