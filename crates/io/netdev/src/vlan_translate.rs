//! Changes the Ethertype of VLAN tags, for networks that drop tagged frames.
//!
//! A switch that drops all frames with tag 0x8100 passes the same tag under another Ethertype. The
//! translator runs where the two kinds of network meet.

use crate::bridge::Change;

/// The usual Ethertype of VLAN tags (IEEE 802.1Q).
pub const TAG_USUAL: u16 = 0x8100;

/// The Ethertype that the test beds of the IRATI project used instead.
pub const TAG_INNER: u16 = 0x7100;

/// Changes the Ethertype of a frame's outer tag from `from` to `to`. Returns true if it did.
pub fn translate(frame: &mut [u8], from: u16, to: u16) -> bool {
    match frame.get_mut(12..14) {
        // A frame that consists only of addresses and an Ethertype has no tag.
        Some(field) if *field == from.to_be_bytes() => {
            field.copy_from_slice(&to.to_be_bytes());
            true
        }
        _ => false,
    }
}

/// Returns the changes of both directions for a [`Bridge`](crate::Bridge) between a network with
/// `inner` tags and a network with `outer` tags.
#[must_use]
pub fn changes(inner: u16, outer: u16) -> [Option<Change>; 2] {
    [
        Some(Box::new(move |frame: &mut [u8]| {
            translate(frame, inner, outer)
        })),
        Some(Box::new(move |frame: &mut [u8]| {
            translate(frame, outer, inner)
        })),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outer_tag_changes_and_the_way_back_restores_it() {
        let mut frame = vec![1; 12];
        frame.extend_from_slice(&[0x71, 0, 0, 10, 0x71, 0, 0, 11, 0xd1, 0xf0]);
        let before = frame.clone();
        assert!(translate(&mut frame, TAG_INNER, TAG_USUAL));
        assert_eq!(frame[12..], [0x81, 0, 0, 10, 0x71, 0, 0, 11, 0xd1, 0xf0]);
        assert!(!translate(&mut frame, TAG_INNER, TAG_USUAL));
        assert!(translate(&mut frame, TAG_USUAL, TAG_INNER));
        assert_eq!(frame, before);
        assert!(!translate(&mut frame[..13], TAG_INNER, TAG_USUAL));
    }
}
