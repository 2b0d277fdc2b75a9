//! Carina's own framing of UDP datagrams: flow numbers, and allocation by name.
//!
//! ```text
//!  0       1       2               4
//!  +-------+-------+---------------+-----------------------------------------------
//!  | kind  | 1     | flow          | kind 0  SDU: the rest of the datagram
//!  |       |version| of receiver   | kind 1  REQUEST: flow of sender u16, caller, called
//!  +-------+-------+---------------+ kind 2  ACCEPT:  flow of sender u16
//!                                    kind 3  REFUSE:  reason
//!                                    kind 4  END:     flow of sender u16, reason
//!  text: length u8, then UTF-8. Numbers in network byte order. A REQUEST has flow 0, and so has
//!  the END for a flow that the sender does not know: its `flow of sender` repeats that of the SDU.
//! ```
//!
//! The initiator repeats its REQUEST until it is answered. The responder answers every repetition
//! in the same way. An END is not repeated: a side that sends to a flow that no longer exists gets
//! an END.

use carina_api::AppName;

/// A datagram in Carina's own framing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// An SDU of a flow.
    Sdu {
        /// The receiver's number of the flow.
        flow: u16,
        /// The bytes of the SDU.
        sdu: &'a [u8],
    },
    /// Requests a flow.
    Request {
        /// Number by which the sender identifies the flow.
        from: u16,
        /// Name of the calling application.
        caller: AppName,
        /// Name of the called application.
        called: AppName,
    },
    /// Accepts a request.
    Accept {
        /// The receiver's number of the flow.
        flow: u16,
        /// Number by which the sender identifies the flow.
        from: u16,
    },
    /// Refuses a request.
    Refuse {
        /// The receiver's number of the flow.
        flow: u16,
        /// Why the sender refuses the request, as text for people.
        reason: &'a str,
    },
    /// Ends a flow.
    End {
        /// The receiver's number of the flow; 0 if the sender does not know it.
        flow: u16,
        /// Number by which the sender identifies the flow.
        from: u16,
        /// Reason, for people; empty when the application closed the flow.
        reason: &'a str,
    },
}

impl<'a> Frame<'a> {
    /// Decodes a datagram; `None` if it is not a valid frame.
    #[must_use]
    pub(crate) fn decode(datagram: &'a [u8]) -> Option<Frame<'a>> {
        let (&[kind, version, high, low], rest) = datagram.split_first_chunk()?;
        if version != VERSION {
            return None;
        }
        let flow = u16::from_be_bytes([high, low]);
        match kind {
            0 => Some(Frame::Sdu { flow, sdu: rest }),
            1 if flow == 0 => {
                let (from, rest) = number(rest)?;
                let (caller, rest) = text(rest)?;
                let (called, rest) = text(rest)?;
                rest.is_empty().then_some(())?;
                Some(Frame::Request {
                    from,
                    caller: AppName::new(caller).ok()?,
                    called: AppName::new(called).ok()?,
                })
            }
            2 => {
                let (from, rest) = number(rest)?;
                rest.is_empty().then_some(Frame::Accept { flow, from })
            }
            3 => {
                let (reason, rest) = text(rest)?;
                rest.is_empty().then_some(Frame::Refuse { flow, reason })
            }
            4 => {
                let (from, rest) = number(rest)?;
                let (reason, rest) = text(rest)?;
                rest.is_empty().then_some(Frame::End { flow, from, reason })
            }
            _ => None,
        }
    }

    /// Appends the encoded datagram to `out`. Reasons are truncated to 255 bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flow) = match self {
            Frame::Sdu { flow, .. } => (0, *flow),
            Frame::Request { .. } => (1, 0),
            Frame::Accept { flow, .. } => (2, *flow),
            Frame::Refuse { flow, .. } => (3, *flow),
            Frame::End { flow, .. } => (4, *flow),
        };
        out.extend_from_slice(&[kind, VERSION]);
        out.extend_from_slice(&flow.to_be_bytes());
        match self {
            Frame::Sdu { sdu, .. } => out.extend_from_slice(sdu),
            Frame::Request {
                from,
                caller,
                called,
            } => {
                out.extend_from_slice(&from.to_be_bytes());
                put_text(out, caller.as_str());
                put_text(out, called.as_str());
            }
            Frame::Accept { from, .. } => out.extend_from_slice(&from.to_be_bytes()),
            Frame::Refuse { reason, .. } => put_text(out, reason),
            Frame::End { from, reason, .. } => {
                out.extend_from_slice(&from.to_be_bytes());
                put_text(out, reason);
            }
        }
    }
}

/// The header of an SDU for the receiver's flow number `flow`.
#[must_use]
pub(crate) fn sdu_header(flow: u16) -> [u8; SDU_HEADER_BYTES] {
    let [high, low] = flow.to_be_bytes();
    [0, VERSION, high, low]
}

fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number), rest))
}

fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(len))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let cut = text.floor_char_boundary(255);
    out.push(cut as u8);
    out.extend_from_slice(&text.as_bytes()[..cut]);
}

/// Bytes of the header in front of an SDU.
pub(crate) const SDU_HEADER_BYTES: usize = 4;

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<(Frame<'static>, &'static [u8])> {
        let name = |text: &str| AppName::new(text).unwrap();
        vec![
            (
                Frame::Sdu {
                    flow: 258,
                    sdu: b"x",
                },
                b"\0\x01\x01\x02x",
            ),
            (
                Frame::Request {
                    from: 7,
                    caller: name("a"),
                    called: name("bc"),
                },
                b"\x01\x01\0\0\0\x07\x01a\x02bc",
            ),
            (Frame::Accept { flow: 7, from: 9 }, b"\x02\x01\0\x07\0\x09"),
            (
                Frame::Refuse {
                    flow: 7,
                    reason: "no",
                },
                b"\x03\x01\0\x07\x02no",
            ),
            (
                Frame::End {
                    flow: 0,
                    from: 9,
                    reason: "",
                },
                b"\x04\x01\0\0\0\x09\0",
            ),
        ]
    }

    #[test]
    fn frames_are_what_the_table_says_and_come_back_the_same() {
        for (frame, bytes) in examples() {
            let mut encoded = Vec::new();
            frame.encode(&mut encoded);
            assert_eq!(encoded, bytes);
            assert_eq!(Frame::decode(bytes), Some(frame));
        }
        assert_eq!(sdu_header(258), [0, 1, 1, 2]);
    }

    #[test]
    fn cut_and_foreign_datagrams_do_not_decode() {
        for (frame, bytes) in examples() {
            for cut in 0..bytes.len() {
                let is_sdu = matches!(frame, Frame::Sdu { .. });
                assert!(Frame::decode(&bytes[..cut]).is_none() || (is_sdu && cut >= 4));
            }
            let mut longer = bytes.to_vec();
            longer.push(0);
            assert!(Frame::decode(&longer) != Some(frame));
        }
        assert_eq!(Frame::decode(b"\0\x02\0\x01x"), None);
        assert_eq!(Frame::decode(b"\x01\x01\0\0\0\x07\0\x02bc"), None);
        assert_eq!(Frame::decode(b"\x05\x01\0\0"), None);
    }
}
