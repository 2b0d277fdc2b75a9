//! Offloads in software: splits frames that hold several segments, and fills in missing checksums.
//!
//! A packet socket receives frames of local TCP before a network card has segmented them: up to 64
//! KiB with one header and no checksum. A bridge that loses, delays or counts frames needs the
//! frames that would be on the wire. A `virtio_net_hdr` of the kernel states the remaining work:
//!
//! ```text
//!   flags u8 (1: checksum missing), type u8 (0 none, 1 TCPv4, 4 TCPv6, 5 UDP; 0x80 with ECN),
//!   header length u16, segment size u16, checksum from u16, checksum at u16     (host byte order)
//! ```

use crate::packet::{MAC_HEADER_BYTES, VNET_HEADER_BYTES};

/// Error: a frame cannot be converted to plain frames, because it has an unknown kind of
/// segmentation or inconsistent headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported;

/// Converts a frame to plain frames, segmented and with checksums, and passes each to `each`.
///
/// # Errors
/// [`Unsupported`]; some frames may already have been passed.
pub fn plain_frames(
    vnet_header: &[u8],
    frame: &[u8],
    mut each: impl FnMut(&[u8]),
) -> Result<(), Unsupported> {
    let Some(header) = vnet_header.first_chunk::<VNET_HEADER_BYTES>() else {
        each(frame);
        return Ok(());
    };
    let half = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let (segment, sum_from, sum_at) = (half(4), half(6), half(8));
    let is_partial = header[0] & NEEDS_CHECKSUM != 0;
    match header[1] & !WITH_ECN {
        NOT_SEGMENTED if !is_partial => each(frame),
        NOT_SEGMENTED => {
            let mut whole = frame.to_vec();
            complete_checksum(&mut whole, sum_from, sum_at)?;
            each(&whole);
        }
        kind @ (TCP4 | TCP6 | UDP) => {
            let headers = Headers::read(frame, kind)?;
            headers.cut(frame, segment, each)?;
        }
        _ => return Err(Unsupported),
    }
    Ok(())
}

/// Fills in a missing checksum: the sum of the bytes from `start` to the end is written at
/// `start + offset`, where the sum of the pseudo header is. (VIRTIO 1.2 §5.1.6.2)
///
/// # Errors
/// [`Unsupported`]: an offset is outside the frame. The frame is not changed.
pub fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) -> Result<(), Unsupported> {
    let covered = frame.get_mut(start..).ok_or(Unsupported)?;
    let sum = fold(add(0, covered));
    let field = covered.get_mut(offset..offset + 2).ok_or(Unsupported)?;
    // In UDP a checksum of 0 would mean that the sender computed no checksum.
    let sum = if sum == 0 { 0xffff } else { sum };
    field.copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Offsets of the headers in a frame.
#[derive(Clone, Copy)]
struct Headers {
    is_v4: bool,
    is_tcp: bool,
    /// Offset of the transport header.
    transport: usize,
    /// Offset of the payload.
    payload: usize,
}

impl Headers {
    fn read(frame: &[u8], kind: u8) -> Result<Headers, Unsupported> {
        let ip = frame.get(MAC_HEADER_BYTES..).ok_or(Unsupported)?;
        let ethertype = u16::from_be_bytes([frame[12], frame[13]]);
        let is_tcp = kind != UDP;
        let protocol = if is_tcp { 6 } else { 17 };
        let (is_v4, ip_bytes, found) = match ethertype {
            0x0800 if ip.len() >= 20 => (true, usize::from(ip[0] & 0xf) * 4, ip[9]),
            0x86dd if ip.len() >= 40 => (false, 40, ip[6]),
            _ => return Err(Unsupported),
        };
        if found != protocol || ip_bytes < 20 {
            return Err(Unsupported);
        }
        let transport = MAC_HEADER_BYTES + ip_bytes;
        let bytes = if is_tcp {
            usize::from(*frame.get(transport + 12).ok_or(Unsupported)? >> 4) * 4
        } else {
            8
        };
        let shortest = if is_tcp { 20 } else { 8 };
        let payload = transport + bytes;
        if bytes < shortest || payload > frame.len() {
            return Err(Unsupported);
        }
        Ok(Headers {
            is_v4,
            is_tcp,
            transport,
            payload,
        })
    }

    fn cut(
        &self,
        frame: &[u8],
        segment: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Unsupported> {
        if segment == 0 {
            return Err(Unsupported);
        }
        let (head, payload) = frame.split_at(self.payload);
        let count = payload.chunks(segment).count();
        let mut out = Vec::with_capacity(self.payload + segment);
        for (n, chunk) in payload.chunks(segment).enumerate() {
            out.clear();
            out.extend_from_slice(head);
            out.extend_from_slice(chunk);
            self.number(&mut out, n, segment, n + 1 == count);
            self.sum(&mut out);
            each(&out);
        }
        Ok(())
    }

    /// Sets lengths, identification, sequence number and flags of the `n`th segment.
    fn number(&self, out: &mut [u8], n: usize, segment: usize, is_last: bool) {
        let (ip, transport) = (MAC_HEADER_BYTES, self.transport);
        let ip_bytes = out.len() - ip;
        if self.is_v4 {
            put16(out, ip + 2, ip_bytes as u16);
            let id = get16(out, ip + 4).wrapping_add(n as u16);
            put16(out, ip + 4, id);
        } else {
            put16(out, ip + 4, (ip_bytes - 40) as u16);
        }
        if !self.is_tcp {
            return put16(out, transport + 4, (out.len() - transport) as u16);
        }
        let sequence =
            u32::from(get16(out, transport + 4)) << 16 | u32::from(get16(out, transport + 6));
        let sequence = sequence.wrapping_add((n * segment) as u32);
        put16(out, transport + 4, (sequence >> 16) as u16);
        put16(out, transport + 6, sequence as u16);
        if !is_last {
            out[transport + 13] &= !(TCP_FIN | TCP_PSH);
        }
        if n > 0 {
            out[transport + 13] &= !TCP_CWR;
        }
    }

    /// Sets the checksums of the IPv4 header and of the segment.
    fn sum(&self, out: &mut [u8]) {
        let (ip, transport) = (MAC_HEADER_BYTES, self.transport);
        if self.is_v4 {
            put16(out, ip + 10, 0);
            let sum = fold(add(0, &out[ip..transport]));
            put16(out, ip + 10, sum);
        }
        let field = transport + if self.is_tcp { 16 } else { 6 };
        put16(out, field, 0);
        let addresses = if self.is_v4 {
            ip + 12..ip + 20
        } else {
            ip + 8..ip + 40
        };
        let protocol = if self.is_tcp { 6 } else { 17 };
        let mut sum = add(0, &out[addresses]);
        sum += protocol + (out.len() - transport) as u64;
        let sum = fold(add(sum, &out[transport..]));
        let sum = if sum == 0 && !self.is_tcp {
            0xffff
        } else {
            sum
        };
        put16(out, field, sum);
    }
}

fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Adds 16-bit words to a sum. An odd byte at the end counts as the upper half of a word.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    sum + u64::from(word_sum(bytes))
}

/// Returns the one's complement sum of the 16-bit words of `bytes`: an Internet checksum is its
/// complement. An odd byte at the end counts as the upper half of a word. (RFC 1071)
#[must_use]
pub fn word_sum(bytes: &[u8]) -> u16 {
    // Words of 32 bits in the machine's order have the same sum but for the order of the result's
    // bytes. (RFC 1071 §2)
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let sum = words.map(u64::from).sum::<u64>() + u64::from(u32::from_ne_bytes(last));
    u16::from_be(!fold(sum))
}

/// The Internet checksum for a sum of 16-bit words.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

const NEEDS_CHECKSUM: u8 = 1;
const NOT_SEGMENTED: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
const WITH_ECN: u8 = 0x80;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    fn vnet(flags: u8, kind: u8, segment: u16, from: u16, at: u16) -> Vec<u8> {
        let mut header = vec![flags, kind, 0, 0];
        for word in [segment, from, at] {
            header.extend_from_slice(&word.to_ne_bytes());
        }
        header
    }

    fn frame(is_v4: bool, is_tcp: bool, payload: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let transport = if is_tcp { 20 } else { 8 };
        if is_v4 {
            frame.extend_from_slice(&[8, 0, 0x45, 0]);
            frame.extend_from_slice(&((20 + transport + payload) as u16).to_be_bytes());
            frame.extend_from_slice(&[0xff, 0xff, 0x40, 0, 64, if is_tcp { 6 } else { 17 }, 0, 0]);
            frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&((transport + payload) as u16).to_be_bytes());
            frame.extend_from_slice(&[if is_tcp { 6 } else { 17 }, 64]);
            frame.extend((0..32).map(|n| n as u8));
        }
        if is_tcp {
            frame.extend_from_slice(&[0, 80, 1, 2, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9]);
            frame.extend_from_slice(&[0x50, 0x99, 1, 0, 0, 0, 0, 0]);
        } else {
            frame.extend_from_slice(&[0, 80, 1, 2, 0, 0, 0, 0]);
        }
        frame.extend((0..payload).map(|n| n as u8));
        frame
    }

    fn cut(is_v4: bool, is_tcp: bool, payload: usize) -> Vec<Vec<u8>> {
        let kind = match (is_v4, is_tcp) {
            (true, true) => TCP4,
            (false, true) => TCP6 | WITH_ECN,
            (_, false) => UDP,
        };
        let mut out = Vec::new();
        let frame = frame(is_v4, is_tcp, payload);
        let header = vnet(1, kind, 1000, 34, 16);
        plain_frames(&header, &frame, |plain| out.push(plain.to_vec())).unwrap();
        out
    }

    #[test]
    fn segments_carry_the_payload_in_order_with_right_sums() {
        for (is_v4, is_tcp) in [(true, true), (false, true), (true, false), (false, false)] {
            let ip = if is_v4 { 20 } else { 40 };
            let head = 14 + ip + if is_tcp { 20 } else { 8 };
            let out = cut(is_v4, is_tcp, 2500);
            assert_eq!(
                out.iter().map(|f| f.len() - head).collect::<Vec<_>>(),
                [1000, 1000, 500]
            );
            let payload: Vec<u8> = out.iter().flat_map(|f| f[head..].to_vec()).collect();
            assert!(payload.iter().enumerate().all(|(n, byte)| *byte == n as u8));
            for segment in &out {
                let transport = 14 + ip;
                let pseudo = if is_v4 { 26..34 } else { 22..54 };
                let protocol = if is_tcp { 6 } else { 17 };
                let sum = add(0, &segment[pseudo]) + protocol + (segment.len() - transport) as u64;
                assert_eq!(
                    fold(add(sum, &segment[transport..])),
                    0,
                    "transport checksum"
                );
                if is_v4 {
                    assert_eq!(fold(add(0, &segment[14..34])), 0, "header checksum");
                    assert_eq!(usize::from(get16(segment, 16)), segment.len() - 14);
                } else {
                    assert_eq!(usize::from(get16(segment, 18)), segment.len() - 54);
                }
            }
            if is_tcp {
                let at = 14 + ip + 13;
                let flags: Vec<u8> = out.iter().map(|f| f[at]).collect();
                assert_eq!(flags, [0x90, 0x10, 0x19], "CWR first, FIN and PSH last");
                assert_eq!(get16(&out[1], 14 + ip + 4), 0);
            }
        }
    }

    #[test]
    fn a_missing_checksum_is_filled_in_and_plain_frames_stay() {
        let plain = frame(true, false, 3);
        let mut out = Vec::new();
        plain_frames(&vnet(0, 0, 0, 0, 0), &plain, |f| out.push(f.to_vec())).unwrap();
        plain_frames(&[], &plain, |f| out.push(f.to_vec())).unwrap();
        assert!(out.iter().all(|f| *f == plain));
        let mut summed = Vec::new();
        plain_frames(&vnet(1, 0, 0, 34, 6), &plain, |f| summed = f.to_vec()).unwrap();
        assert_eq!(fold(add(0, &summed[34..])), 0);
    }

    #[test]
    fn sum_of_words_does_not_depend_on_their_length() {
        for length in 0..70 {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 37 + 11) as u8).collect();
            let words = bytes.chunks(2).map(|word| {
                let low = word.get(1).copied().unwrap_or(0);
                u64::from(u16::from_be_bytes([word[0], low]))
            });
            assert_eq!(word_sum(&bytes), !fold(words.sum()), "{length} bytes");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let frame = frame(true, true, 100);
        let refuse = |header: &[u8], frame: &[u8]| {
            assert_eq!(plain_frames(header, frame, |_| {}), Err(Unsupported));
        };
        refuse(&vnet(1, 3, 1000, 34, 16), &frame);
        refuse(&vnet(1, TCP4, 0, 34, 16), &frame);
        refuse(&vnet(1, TCP6, 10, 34, 16), &frame[..40]);
        refuse(&vnet(1, UDP, 10, 34, 16), &frame);
        refuse(&vnet(1, 0, 0, 34, 200), &frame);
        for len in 0..54 {
            refuse(&vnet(1, TCP4, 10, 34, 16), &frame[..len]);
        }
    }
}
