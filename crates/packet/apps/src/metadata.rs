//! Metadata that headers in front would make wrong.

use carina_frame::Frame;
use carina_wire::ether::TPID_CUSTOMER;
use carina_wire::inet::checksum;

use crate::vlan::{Tag, push_tag};

/// Makes the bytes of a frame all there is of it, so that it can become the payload of another: a
/// tag beside them is put in, a checksum filled in, and the rest forgotten. False for a frame that
/// is still to be cut, or without room for its tag.
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
            // The field holds the sum of the pseudo header, and counts with the rest.
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

/// Forgets what is known of a frame whose outer headers were taken off.
#[inline]
pub fn forget(frame: &mut Frame) {
    if frame.has_metadata() {
        frame.set_metadata(&carina_frame::Metadata::default());
    }
}
