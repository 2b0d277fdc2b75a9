//! Fragmentation of IP packets, parsing of fragments, and building of reassembled packets. (RFC 791
//! §3.2, RFC 8200 §4.5)

use carina_frame::{Frame, Pool};
use carina_wire::inet::{Ipv4Header, checksum};
use carina_wire::ipv6::{FRAGMENT, FRAGMENT_BYTES, IPV6_BYTES, Upper};

use crate::congestion::{CE, ECN, class_of, set_class};
use crate::reassembly::{Fragment, Whole};

/// Why a packet cannot be fragmented or reassembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// The bytes are not a valid IP packet.
    #[error("the bytes are not a valid IP packet")]
    Malformed,
    /// The packet has the flag "don't fragment".
    #[error("the packet has the flag \"don't fragment\"")]
    DontFragment,
    /// The MTU leaves no room for a payload.
    #[error("an MTU of {0} bytes is too small for a fragment")]
    Mtu(usize),
    /// The pool has no frame, or its frames are too short.
    #[error("the pool has no free frame that is long enough")]
    NoFrame,
}

/// Fields in bytes 6 and 7 of an IPv4 header: two flags, and the offset in units of 8 bytes.
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Whether an IPv4 packet has the flag "don't fragment".
#[must_use]
pub fn must_not_be_cut(packet: &[u8]) -> bool {
    packet.get(6).is_some_and(|flags| flags & 0x40 != 0)
}

/// Parses an IPv4 fragment that follows `head_bytes` bytes of other headers. The fragment's head
/// consists of these headers and its IPv4 header.
#[must_use]
pub fn fragment4<'a>(bytes: &'a [u8], head_bytes: usize, header: &Ipv4Header) -> Fragment<'a> {
    let packet = &bytes[head_bytes..];
    let word = u16::from_be_bytes([packet[6], packet[7]]);
    Fragment {
        head: &bytes[..head_bytes + header.header_bytes],
        offset: usize::from(word & OFFSET) * 8,
        is_last: word & MORE_FRAGMENTS == 0,
        ecn: class_of(packet) & ECN,
        payload: &packet[header.header_bytes..header.total_bytes],
    }
}

/// Parses an IPv6 fragment that follows `head_bytes` bytes of other headers, as [`fragment4`] does;
/// also returns its identification. `None` if the packet has no fragment header. `bytes` must end
/// where the packet ends.
#[must_use]
pub fn fragment6(bytes: &[u8], head_bytes: usize) -> Option<(Fragment<'_>, u32)> {
    let packet = bytes.get(head_bytes..)?;
    let upper = Upper::of_all(packet).ok()?;
    let part = upper.part.filter(|_| upper.protocol == FRAGMENT)?;
    let behind = upper.start + FRAGMENT_BYTES;
    let made = Fragment {
        head: &bytes[..head_bytes + behind],
        offset: part.offset,
        is_last: !part.has_more,
        ecn: class_of(packet) & ECN,
        payload: packet.get(behind..)?,
    };
    Some((made, part.id))
}

/// Builds the frame of a reassembled IPv4 packet, behind `head_bytes` bytes of other headers.
///
/// # Errors
/// The packet is too long for IP, or the pool has no frame for it.
pub fn whole4(whole: &Whole, head_bytes: usize, pool: &Pool) -> Result<Frame, CutError> {
    let (head, payload) = (&whole.head[..], &whole.payload[..]);
    let header_bytes = head.len().checked_sub(head_bytes);
    let header_bytes = header_bytes.ok_or(CutError::Malformed)?;
    let total = u16::try_from(header_bytes + payload.len()).map_err(|_| CutError::Malformed)?;
    let mut frame = joined(head, payload, pool)?;
    let header = &mut frame.bytes_mut()[head_bytes..head_bytes + header_bytes];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let kept = u16::from_be_bytes([header[6], header[7]]) & DONT_FRAGMENT;
    header[6..8].copy_from_slice(&kept.to_be_bytes());
    sum_header(header);
    mark(&mut frame.bytes_mut()[head_bytes..], whole);
    Ok(frame)
}

/// Builds the frame of a reassembled IPv6 packet, as [`whole4`] does. The fragment header at the
/// end of the head is left out.
///
/// # Errors
/// The packet is too long for IP, or the pool has no frame for it.
pub fn whole6(whole: &Whole, head_bytes: usize, pool: &Pool) -> Result<Frame, CutError> {
    let (head, payload) = (&whole.head[..], &whole.payload[..]);
    let packet = head.get(head_bytes..).ok_or(CutError::Malformed)?;
    let upper = Upper::of_all(packet).map_err(|_| CutError::Malformed)?;
    let part = upper.part.ok_or(CutError::Malformed)?;
    let extensions = upper.start.checked_sub(IPV6_BYTES);
    let length = extensions.ok_or(CutError::Malformed)? + payload.len();
    let length = u16::try_from(length).map_err(|_| CutError::Malformed)?;
    let mut frame = joined(&head[..head_bytes + upper.start], payload, pool)?;
    let packet = &mut frame.bytes_mut()[head_bytes..];
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet[upper.named_at] = part.next;
    mark(packet, whole);
    Ok(frame)
}

/// Marks a reassembled packet as having met congestion, if one of its fragments was marked.
fn mark(packet: &mut [u8], whole: &Whole) {
    if whole.is_marked {
        set_class(packet, class_of(packet) | CE);
    }
}

/// Removes the extension headers of an IPv6 packet behind `head_bytes` bytes of other headers, and
/// any bytes behind the packet. `upper` is the result of parsing the packet. The payload is not
/// moved.
pub fn without_extensions6(frame: &mut Frame, head_bytes: usize, upper: &Upper) {
    frame.truncate(head_bytes + upper.end);
    let extensions = upper.start - IPV6_BYTES;
    if extensions == 0 {
        return;
    }
    let bytes = frame.bytes_mut();
    let length = (upper.end - upper.start) as u16;
    bytes[head_bytes + 4..head_bytes + 6].copy_from_slice(&length.to_be_bytes());
    bytes[head_bytes + 6] = upper.protocol;
    bytes.copy_within(..head_bytes + IPV6_BYTES, extensions);
    frame.advance(extensions);
}

fn joined(head: &[u8], payload: &[u8], pool: &Pool) -> Result<Frame, CutError> {
    let mut frame = pool.take().ok_or(CutError::NoFrame)?;
    if frame.append(head) && frame.append(payload) {
        Ok(frame)
    } else {
        Err(CutError::NoFrame)
    }
}

fn sum_header(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(header, 0);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Fragments an IPv4 packet into packets of at most `mtu` bytes, passes them to `each`, and returns
/// their number. The packet may itself be a fragment.
///
/// # Errors
/// The packet cannot be fragmented. After [`CutError::NoFrame`], `each` may have received some of
/// the fragments.
pub fn cut4(
    packet: &[u8],
    mtu: usize,
    pool: &Pool,
    mut each: impl FnMut(Frame),
) -> Result<usize, CutError> {
    let decoded = Ipv4Header::decode(packet).map_err(|_| CutError::Malformed)?;
    if must_not_be_cut(packet) {
        return Err(CutError::DontFragment);
    }
    let (first, payload) = packet[..decoded.total_bytes].split_at(decoded.header_bytes);
    let step = mtu.saturating_sub(decoded.header_bytes) / 8 * 8;
    if step == 0 {
        return Err(CutError::Mtu(mtu));
    }
    let word = u16::from_be_bytes([packet[6], packet[7]]);
    let (options, options_bytes) = copied_options(first);
    let mut later = [0; 60];
    later[..20].copy_from_slice(&first[..20]);
    later[20..].copy_from_slice(&options);
    let later_bytes = 20 + options_bytes;
    later[0] = 0x40 | (later_bytes / 4) as u8;
    let mut count = 0;
    for (number, part) in payload.chunks(step).enumerate() {
        let head = match number {
            0 => first,
            _ => &later[..later_bytes],
        };
        let is_last = (number + 1) * step >= payload.len();
        let offset = (word & OFFSET) + (number * step / 8) as u16;
        let more = if is_last {
            word & MORE_FRAGMENTS
        } else {
            MORE_FRAGMENTS
        };
        let mut frame = joined(head, part, pool)?;
        let header = &mut frame.bytes_mut()[..head.len()];
        let total = (head.len() + part.len()) as u16;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[6..8].copy_from_slice(&(offset & OFFSET | more).to_be_bytes());
        sum_header(header);
        each(frame);
        count += 1;
    }
    Ok(count)
}

/// The options that every fragment must repeat, with padding: those with the copied flag. (RFC 791
/// §3.1)
fn copied_options(header: &[u8]) -> ([u8; 40], usize) {
    let (mut copied, mut length) = ([0; 40], 0);
    let mut rest = &header[20..];
    while let [kind, behind @ ..] = rest {
        let kind = *kind;
        // End of the option list, and no operation.
        if kind == 0 {
            break;
        }
        if kind == 1 {
            rest = behind;
            continue;
        }
        let bytes = usize::from(behind.first().copied().unwrap_or(0));
        let Some(option) = rest.get(..bytes).filter(|option| option.len() >= 2) else {
            break;
        };
        if kind & 0x80 != 0 {
            copied[length..length + bytes].copy_from_slice(option);
            length += bytes;
        }
        rest = &rest[bytes..];
    }
    (copied, length.next_multiple_of(4))
}

/// Fragments an IPv6 packet into packets of at most `mtu` bytes. The fragment header follows the
/// IPv6 header. Passes the fragments to `each`, and returns their number.
///
/// # Errors
/// As for [`cut4`].
pub fn cut6(
    packet: &[u8],
    mtu: usize,
    id: u32,
    pool: &Pool,
    mut each: impl FnMut(Frame),
) -> Result<usize, CutError> {
    let (header, rest) = packet
        .split_first_chunk::<IPV6_BYTES>()
        .ok_or(CutError::Malformed)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let payload = rest.get(..length).ok_or(CutError::Malformed)?;
    let step = mtu.saturating_sub(IPV6_BYTES + FRAGMENT_BYTES) / 8 * 8;
    if step == 0 {
        return Err(CutError::Mtu(mtu));
    }
    let mut head = [0; IPV6_BYTES + FRAGMENT_BYTES];
    head[..IPV6_BYTES].copy_from_slice(header);
    head[6] = FRAGMENT;
    head[IPV6_BYTES] = header[6];
    head[44..].copy_from_slice(&id.to_be_bytes());
    let mut count = 0;
    for (number, part) in payload.chunks(step).enumerate() {
        let is_last = (number + 1) * step >= payload.len();
        let length = (FRAGMENT_BYTES + part.len()) as u16;
        head[4..6].copy_from_slice(&length.to_be_bytes());
        let word = (number * step) as u16 | u16::from(!is_last);
        head[42..44].copy_from_slice(&word.to_be_bytes());
        each(joined(&head, part, pool)?);
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use carina_frame::PoolConfig;
    use carina_time::{Duration, Instant};

    use super::*;
    use crate::reassembly::{Bounds, Outcome, Reassembly};

    fn pool() -> Pool {
        Pool::new(PoolConfig {
            frames: 64,
            frame_bytes: 4096,
        })
        .unwrap()
    }

    fn bounds() -> Bounds {
        Bounds {
            packets: 8,
            fragments: 100,
            bytes: 1 << 20,
            time: Duration::from_secs(30),
        }
    }

    /// A packet with an option that fragments repeat, one that they do not, and padding.
    fn packet4(payload: usize) -> Vec<u8> {
        let mut packet = vec![0x48, 0, 0, 0, 0x12, 0x34, 0, 0, 64, 17, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0x94, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0]);
        packet.extend((0..payload).map(|n| n as u8));
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        sum_header(&mut packet[..32]);
        packet
    }

    #[test]
    fn ipv4_is_cut_and_put_together_again() {
        let (pool, packet) = (pool(), packet4(1001));
        for mtu in [68, 576, 1000] {
            let mut parts = Vec::new();
            let count = cut4(&packet, mtu, &pool, |frame| parts.push(frame)).unwrap();
            assert_eq!(count, 1001_usize.div_ceil((mtu - 32) / 8 * 8));
            let mut reassembly = Reassembly::new(bounds());
            let mut made = None;
            for (number, part) in parts.iter().enumerate() {
                let header = Ipv4Header::decode(part.bytes()).unwrap();
                assert!(header.total_bytes == part.len() && part.len() <= mtu);
                assert_eq!(header.header_bytes, if number == 0 { 32 } else { 24 });
                let fragment = fragment4(part.bytes(), 0, &header);
                let outcome = reassembly.add((), &fragment, Instant::ZERO, || 0);
                if let Outcome::Complete(whole) = outcome {
                    made = whole4(&whole, 0, &pool).ok();
                }
            }
            assert_eq!(made.unwrap().bytes(), packet, "MTU {mtu}");
        }
    }

    #[test]
    fn fragment_of_ipv4_is_cut_again() {
        let (pool, packet) = (pool(), packet4(1000));
        let mut parts = Vec::new();
        cut4(&packet, 600, &pool, |frame| parts.push(frame)).unwrap();
        let mut again = Vec::new();
        for part in &parts {
            cut4(part.bytes(), 200, &pool, |frame| again.push(frame)).unwrap();
        }
        let mut reassembly = Reassembly::new(bounds());
        let outcomes = again.iter().map(|part| {
            let header = Ipv4Header::decode(part.bytes()).unwrap();
            let fragment = fragment4(part.bytes(), 0, &header);
            reassembly.add((), &fragment, Instant::ZERO, || 0)
        });
        let Some(Outcome::Complete(whole)) = outcomes.last() else {
            panic!("not complete");
        };
        let made = whole4(&whole, 0, &pool).unwrap();
        assert_eq!(made.bytes(), packet);
    }

    #[test]
    fn ipv6_is_cut_and_put_together_again() {
        let pool = pool();
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 4, 64];
        packet.extend([0xfd; 32]);
        packet.extend((0..1460).map(|n| n as u8));
        packet[4..6].copy_from_slice(&1460_u16.to_be_bytes());
        let mut parts = Vec::new();
        cut6(&packet, 1500, 77, &pool, |frame| parts.push(frame)).unwrap();
        let lengths: Vec<usize> = parts.iter().map(Frame::len).collect();
        assert_eq!(lengths, [1496, 60]);
        let mut reassembly = Reassembly::new(bounds());
        let outcomes = parts.iter().rev().map(|part| {
            let (fragment, id) = fragment6(part.bytes(), 0).unwrap();
            assert_eq!(id, 77);
            reassembly.add(id, &fragment, Instant::ZERO, || 0)
        });
        let Some(Outcome::Complete(whole)) = outcomes.last() else {
            panic!("not complete");
        };
        let made = whole6(&whole, 0, &pool).unwrap();
        assert_eq!(made.bytes(), packet);
    }

    #[test]
    fn packets_that_cannot_be_cut_stay_whole() {
        let pool = pool();
        let mut packet = packet4(100);
        let none = |_: Frame| panic!("a fragment");
        assert_eq!(cut4(&packet, 39, &pool, none), Err(CutError::Mtu(39)));
        packet[6] = 0x40;
        sum_header(&mut packet[..32]);
        assert_eq!(cut4(&packet, 68, &pool, none), Err(CutError::DontFragment));
        assert_eq!(
            cut4(&packet[..99], 68, &pool, none),
            Err(CutError::Malformed)
        );
        assert_eq!(
            cut6(&[0x60; 40], 1280, 1, &pool, none),
            Err(CutError::Malformed)
        );
    }
}
