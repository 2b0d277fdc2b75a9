//! Ethernet headers, with and without an 802.1Q tag.
//!
//! ```text
//!  0        6        12                    12 or 16
//!  +--------+--------+---------------------+-----------+---------
//!  | dst    | src    | TPID 2 | PCP DEI    | ethertype | payload, padded to 46
//!  |        |        |        | VLAN id 2  | 2         | (42 behind a tag)
//!  +--------+--------+---------------------+-----------+---------
//!                    only in a tagged frame
//! ```

use core::fmt;
use core::str::FromStr;

/// Ethertype of RINA: PDUs of a normal DIF directly in Ethernet frames.
pub const ETHERTYPE_RINA: u16 = 0xd1f0;

/// Ethertype of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;

/// TPID of a customer tag (802.1Q), the usual one.
pub const TPID_CUSTOMER: u16 = 0x8100;

/// TPID of a provider tag (802.1ad).
pub const TPID_PROVIDER: u16 = 0x88a8;

/// TPID that RINA experiments in the PRISTINE project used for their VLANs.
pub const TPID_PRISTINE: u16 = 0x7100;

/// Length of a header with a tag, in bytes. A header without tag is four bytes shorter.
pub const HEADER_BYTES_MAX: usize = 18;

/// Highest valid VLAN id.
pub const VLAN_MAX: u16 = 4094;

/// Length of a header without tag, in bytes.
const UNTAGGED: usize = 14;

/// A MAC address, in the order of transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The address of all stations.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// The address with all bits zero, which no station has.
    pub const ZERO: Mac = Mac([0; 6]);

    /// Whether this is a broadcast or multicast address.
    #[must_use]
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = MacError;

    /// Parses six pairs of hexadecimal digits with colons between.
    fn from_str(text: &str) -> Result<Mac, MacError> {
        let mut parts = text.split(':');
        let mut mac = [0; 6];
        for byte in &mut mac {
            let digits = parts.next().ok_or(MacError)?;
            let is_pair = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            if !is_pair {
                return Err(MacError);
            }
            *byte = u8::from_str_radix(digits, 16).map_err(|_| MacError)?;
        }
        match parts.next() {
            None => Ok(Mac(mac)),
            Some(_) => Err(MacError),
        }
    }
}

/// Error: the text is not a MAC address, such as `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacError;

impl fmt::Display for MacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six pairs of hexadecimal digits with colons between")
    }
}

impl core::error::Error for MacError {}

/// An 802.1Q tag of an Ethernet header: VLAN id and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Ethertype of the tag: see the `TPID` constants of this module.
    pub tpid: u16,
    /// VLAN id, 0 to [`VLAN_MAX`]. With 0 the tag carries a priority only.
    pub vlan: u16,
    /// Priority of the frame, 0 to 7.
    pub priority: u8,
    /// Whether switches should drop this frame before others in congestion.
    pub drop_eligible: bool,
}

/// The header of an Ethernet frame: addresses, tag and Ethertype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination MAC address.
    pub dst: Mac,
    /// Source MAC address.
    pub src: Mac,
    /// The VLAN tag; `None` in an untagged frame.
    pub tag: Option<Tag>,
    /// Ethertype: the protocol of the payload.
    pub ethertype: u16,
}

impl Tag {
    /// Makes the tag of a VLAN with type `tpid`; returns `None` for VLAN id 0, which means an
    /// untagged frame.
    #[must_use]
    pub fn of_vlan(tpid: u16, vlan: u16) -> Option<Tag> {
        (vlan != 0).then_some(Tag {
            tpid,
            vlan,
            priority: 0,
            drop_eligible: false,
        })
    }

    /// Decodes a tag control field, as a network interface reports it.
    #[must_use]
    pub fn from_control(tpid: u16, control: u16) -> Tag {
        Tag {
            tpid,
            vlan: control & 0x0fff,
            priority: (control >> 13) as u8,
            drop_eligible: control & 0x1000 != 0,
        }
    }

    /// Encodes the tag control field: priority, drop eligible and VLAN id.
    #[must_use]
    pub fn control(&self) -> u16 {
        u16::from(self.priority & 7) << 13
            | u16::from(self.drop_eligible) << 12
            | self.vlan & 0x0fff
    }
}

impl Header {
    /// Writes the header to the start of `out` and returns its length in bytes.
    pub fn encode(&self, out: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        let mut at = 12;
        if let Some(tag) = &self.tag {
            out[12..14].copy_from_slice(&tag.tpid.to_be_bytes());
            out[14..16].copy_from_slice(&tag.control().to_be_bytes());
            at = 16;
        }
        out[at..at + 2].copy_from_slice(&self.ethertype.to_be_bytes());
        at + 2
    }

    /// Decodes the header and returns it with its length. A type in `tpids` starts a tag; only the
    /// outer tag is decoded.
    ///
    /// # Errors
    /// The frame ends before the header does.
    pub fn decode(frame: &[u8], tpids: &[u16]) -> Result<(Header, usize), FrameError> {
        let (dst, rest) = frame.split_first_chunk().ok_or(FrameError)?;
        let (src, rest) = rest.split_first_chunk().ok_or(FrameError)?;
        let (first, rest) = rest.split_first_chunk().ok_or(FrameError)?;
        let mut header = Header {
            dst: Mac(*dst),
            src: Mac(*src),
            tag: None,
            ethertype: u16::from_be_bytes(*first),
        };
        if !tpids.contains(&header.ethertype) {
            return Ok((header, UNTAGGED));
        }
        let (control, rest) = rest.split_first_chunk().ok_or(FrameError)?;
        let ethertype = rest.first_chunk().ok_or(FrameError)?;
        let control = u16::from_be_bytes(*control);
        header.tag = Some(Tag::from_control(header.ethertype, control));
        header.ethertype = u16::from_be_bytes(*ethertype);
        Ok((header, HEADER_BYTES_MAX))
    }

    /// Returns the VLAN id of the frame; 0 for a frame without VLAN.
    #[must_use]
    pub fn vlan(&self) -> u16 {
        self.tag.map_or(0, |tag| tag.vlan)
    }
}

/// Error: the frame ends inside its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError;

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the frame ends within its header")
    }
}

impl core::error::Error for FrameError {}

#[cfg(test)]
mod tests {
    use super::*;

    const TPIDS: [u16; 3] = [TPID_CUSTOMER, TPID_PRISTINE, TPID_PROVIDER];

    fn header(tag: Option<Tag>) -> Header {
        Header {
            dst: Mac::BROADCAST,
            src: "02:00:00:00:00:0a".parse().unwrap(),
            tag,
            ethertype: ETHERTYPE_RINA,
        }
    }

    #[test]
    fn a_tag_moves_the_ethertype_by_four_bytes() {
        let mut out = [0; HEADER_BYTES_MAX];
        assert_eq!(header(None).encode(&mut out), 14);
        assert_eq!(out[12..14], [0xd1, 0xf0]);
        assert_eq!(Header::decode(&out, &TPIDS), Ok((header(None), 14)));

        let tagged = Header {
            tag: Some(Tag {
                priority: 5,
                drop_eligible: true,
                ..Tag::of_vlan(TPID_PRISTINE, 10).unwrap()
            }),
            ..header(None)
        };
        assert_eq!(tagged.encode(&mut out), 18);
        assert_eq!(out[12..18], [0x71, 0x00, 0xb0, 0x0a, 0xd1, 0xf0]);
        assert_eq!(Header::decode(&out, &TPIDS), Ok((tagged, 18)));
        assert_eq!(tagged.vlan(), 10);
        let (other, bytes) = Header::decode(&out, &[TPID_CUSTOMER]).unwrap();
        assert_eq!((other.ethertype, bytes), (TPID_PRISTINE, 14));
        for short in 0..18 {
            assert_eq!(Header::decode(&out[..short], &TPIDS), Err(FrameError));
        }
    }

    #[test]
    fn vlan_0_is_no_vlan() {
        assert_eq!(Tag::of_vlan(TPID_CUSTOMER, 0), None);
        assert_eq!(header(None).vlan(), 0);
    }

    #[test]
    fn mac_addresses_are_read_as_they_are_written() {
        let mac: Mac = "00:1a:2B:3c:4d:ff".parse().unwrap();
        assert_eq!(mac, Mac([0, 0x1a, 0x2b, 0x3c, 0x4d, 0xff]));
        assert_eq!(alloc::format!("{mac}"), "00:1a:2b:3c:4d:ff");
        for wrong in [
            "",
            "00:1a:2b:3c:4d",
            "00:1a:2b:3c:4d:ff:0",
            "0:1:2:3:4:5",
            "+1:00:00:00:00:00",
        ] {
            assert_eq!(wrong.parse::<Mac>(), Err(MacError), "{wrong}");
        }
        assert!(Mac::BROADCAST.is_group() && !mac.is_group());
    }
}
