//! Conversion between frame metadata and virtio-net headers, which kernels put in front of frames;
//! and reception of frames with such a header.

use carina_frame::{Checksum, Frame, Metadata, Pool, Segmentation, SegmentationKind};
use carina_netdev::{Unsupported, VNET_HEADER_BYTES, VnetHeader, VnetSegments, plain_frames};

/// The virtio-net header that describes a frame's missing checksum and pending segmentation.
pub(crate) fn header_of(frame: &Frame) -> VnetHeader {
    if !frame.has_metadata() {
        return VnetHeader::default();
    }
    VnetHeader {
        checksum: frame.checksum().map(|sum| (sum.start, sum.offset)),
        is_checksum_valid: frame.is_checksum_valid(),
        segments: frame.segmentation().map(|cut| {
            let kind = match cut.kind {
                SegmentationKind::Tcp4 => VnetSegments::Tcp4,
                SegmentationKind::Tcp6 => VnetSegments::Tcp6,
                SegmentationKind::Udp => VnetSegments::Udp,
            };
            (kind, cut.size, cut.headers)
        }),
    }
}

/// The metadata that corresponds to a virtio-net header.
pub(crate) fn metadata_of(header: &VnetHeader) -> Metadata {
    Metadata {
        checksum: header
            .checksum
            .map(|(start, offset)| Checksum { start, offset }),
        is_checksum_valid: header.is_checksum_valid,
        segmentation: header.segments.map(|(kind, size, headers)| Segmentation {
            kind: match kind {
                VnetSegments::Tcp4 => SegmentationKind::Tcp4,
                VnetSegments::Tcp6 => SegmentationKind::Tcp6,
                VnetSegments::Udp => SegmentationKind::Udp,
            },
            size,
            headers,
        }),
        ..Metadata::default()
    }
}

/// Turns received bytes into frames of a pool.
pub(crate) struct Intake {
    pub pool: Pool,
    /// Whether missing checksums and pending segmentation are kept as metadata, if the frame fits
    /// into one of the pool.
    pub keeps_offload: bool,
}

/// What happened to a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Number of frames dropped because the pool had none, or because they are too long for the
    /// pool.
    pub no_frame: u64,
    /// Whether the frame was dropped because its offload request is unknown, or does not fit its
    /// headers.
    pub is_unsupported: bool,
}

impl Intake {
    /// Turns `bytes`, which arrived with this virtio-net `header`, into one frame or several
    /// segments, and passes them to `each`. Inserts the VLAN `tag` into each.
    pub(crate) fn take(
        &self,
        header: &[u8],
        bytes: &[u8],
        tag: Option<[u8; 4]>,
        mut each: impl FnMut(Frame),
    ) -> Taken {
        let mut taken = Taken::default();
        let known = match header.first_chunk::<VNET_HEADER_BYTES>() {
            Some(header) if header[..2] != [0, 0] => VnetHeader::read(header),
            _ => Some(VnetHeader::default()),
        };
        let Some(known) = known else {
            taken.is_unsupported = true;
            return taken;
        };
        let mut put = |bytes: &[u8], metadata: Option<&Metadata>| {
            match self.frame(bytes, tag) {
                Some(mut frame) => {
                    if let Some(metadata) = metadata {
                        frame.set_metadata(metadata);
                    }
                    each(frame);
                }
                None => taken.no_frame += 1,
            };
        };
        let has_work = known.checksum.is_some() || known.segments.is_some();
        if !has_work {
            put(bytes, None);
        } else if self.keeps(bytes.len()) {
            let mut metadata = metadata_of(&known);
            if let (Some(sum), Some(_)) = (&mut metadata.checksum, tag) {
                sum.start += TAG_BYTES as u16;
            }
            put(bytes, Some(&metadata));
        } else if plain_frames(header, bytes, |plain| put(plain, None)) == Err(Unsupported) {
            taken.is_unsupported = true;
        }
        taken
    }

    /// Whether a frame of `len` bytes keeps its pending offload work as metadata.
    pub(crate) fn keeps(&self, len: usize) -> bool {
        self.keeps_offload && len + TAG_BYTES <= self.pool.frame_bytes()
    }

    /// A frame of the pool with these bytes, and with the tag behind the MAC addresses.
    fn frame(&self, bytes: &[u8], tag: Option<[u8; 4]>) -> Option<Frame> {
        let Some(tag) = tag else {
            return self.pool.frame_of(bytes);
        };
        let (addresses, rest) = bytes.split_at_checked(12)?;
        let mut frame = self.pool.frame_of(rest)?;
        let mut front = [0; 16];
        front[..12].copy_from_slice(addresses);
        front[12..].copy_from_slice(&tag);
        frame.prepend(&front).then_some(frame)
    }
}

const TAG_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use carina_apps::sample_packet::udp_packet;
    use carina_frame::PoolConfig;

    use super::*;

    fn intake(keeps_offload: bool, frame_bytes: usize) -> Intake {
        let config = PoolConfig {
            frames: 64,
            frame_bytes,
        };
        Intake {
            pool: Pool::new(config).unwrap(),
            keeps_offload,
        }
    }

    /// A header that requests a checksum, the packet without it, and the packet with it.
    fn partial() -> ([u8; VNET_HEADER_BYTES], Vec<u8>, Vec<u8>) {
        let whole = udp_packet(200);
        let mut partial = whole.clone();
        // The sum of the pseudo header: addresses, protocol, length.
        let mut sum = 17 + 166;
        for pair in whole[26..34].chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        let sum = (sum & 0xffff) + (sum >> 16);
        partial[40..42].copy_from_slice(&(sum as u16).to_be_bytes());
        let header = VnetHeader {
            checksum: Some((34, 6)),
            ..VnetHeader::default()
        };
        (header.bytes(), partial, whole)
    }

    #[test]
    fn frames_are_made_plain_unless_offloads_are_wanted() {
        let (header, partial, whole) = partial();
        let take = |intake: &Intake| {
            let mut frames = Vec::new();
            let taken = intake.take(&header, &partial, None, |frame| frames.push(frame));
            assert_eq!(taken, Taken::default());
            frames
        };
        let plain = take(&intake(false, 2048));
        assert_eq!((plain.len(), plain[0].bytes()), (1, &whole[..]));
        assert!(!plain[0].has_metadata());
        let kept = take(&intake(true, 2048));
        assert_eq!(kept[0].bytes(), partial);
        assert_eq!(header_of(&kept[0]).bytes(), header);
    }

    #[test]
    fn tag_goes_into_the_bytes_and_moves_what_is_behind_it() {
        let (header, partial, _) = partial();
        let tag = [0x81, 0, 0, 5];
        let mut frames = Vec::new();
        intake(true, 2048).take(&header, &partial, Some(tag), |frame| frames.push(frame));
        let bytes = frames[0].bytes();
        assert_eq!((&bytes[..12], &bytes[12..16]), (&partial[..12], &tag[..]));
        assert_eq!(bytes[16..], partial[12..]);
        assert_eq!(frames[0].checksum().map(|sum| sum.start), Some(38));
    }

    #[test]
    fn unknown_and_misplaced_offloads_are_counted() {
        let (_, partial, _) = partial();
        let taken = intake(false, 64).take(&[], &partial, None, |_| {});
        assert_eq!(taken.no_frame, 1);
        let taken = intake(true, 2048).take(&[1, 77, 0, 0, 0, 0, 0, 0, 0, 0], &partial, None, drop);
        assert!(taken.is_unsupported);
        let taken = intake(true, 2048).take(&[], &[1, 2], Some([0; 4]), drop);
        assert_eq!(taken.no_frame, 1);
    }
}
