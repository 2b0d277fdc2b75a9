//! Control messages of the VMPI: one message in each record on channel 0.

use alloc::vec::Vec;

use super::reader::{DecodeError, Reader};
use super::{Channel, REASON_BYTES_MAX, VERSION, WINDOW_BYTES_MIN};
use crate::FlowSpec;

/// A control message of the VMPI. Its strings borrow from the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    /// The first message in each direction after the link has come up.
    Hello(Hello<'a>),
    /// Registers the name of an application on the sender's side, so that the receiver can allocate
    /// flows to it.
    Register {
        /// Name of the application that the receiver may now call.
        name: &'a str,
    },
    /// Withdraws the registration of an application name.
    Unregister {
        /// Name of the application that the receiver may no longer call.
        name: &'a str,
    },
    /// Requests a flow between two applications.
    Allocate {
        /// The channel that the flow will use: even from the host, odd from the guest.
        channel: Channel,
        /// Credit that the requester grants for the other direction, in bytes of ring space.
        window_bytes: u32,
        /// The QoS that the calling application requests for the flow.
        spec: FlowSpec,
        /// Name of the requesting application.
        source: &'a str,
        /// Name of the application to which the flow is requested.
        destination: &'a str,
    },
    /// Answers [`Control::Allocate`].
    AllocateResponse {
        /// The channel of the request.
        channel: Channel,
        /// Credit that the responder grants, in bytes of ring space; 0 if it refuses.
        window_bytes: u32,
        /// Whether the flow is accepted; otherwise why not.
        outcome: Outcome,
        /// Reason of a refusal, for people; may be empty.
        reason: &'a str,
    },
    /// Ends a flow. Each side sends exactly one such message; then the channel is free.
    Deallocate {
        /// Channel of the flow that ends.
        channel: Channel,
        /// Reason, for people; empty when the application closed the flow.
        reason: &'a str,
    },
    /// Raises the limit up to which the receiver of the message may send on a channel.
    Credit {
        /// Channel whose limit is raised.
        channel: Channel,
        /// Total ring space in bytes that the receiver of the message may use, counted from the
        /// start of the flow.
        limit_bytes: u64,
    },
}

/// Contents of [`Control::Hello`]: the limits and the name of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Longest SDU that the sender of this message can receive, in bytes. The peer may send no
    /// longer SDU.
    pub sdu_bytes_max: u64,
    /// Longest piece of an SDU that the sender of this message can receive, in bytes without the
    /// header. The peer splits longer SDUs.
    pub piece_bytes_max: u32,
    /// Largest number of channels that the receiver of this message may have open at its own
    /// request.
    pub channels_max: u16,
    /// Longest bundle that the sender of this message can receive, in bytes without the header; 0
    /// if it can receive no bundles.
    pub bundle_bytes_max: u32,
    /// Name of the system that sends the message.
    pub name: &'a str,
}

/// How a flow request was answered, in [`Control::AllocateResponse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// The flow is established.
    Accepted = 0,
    /// The application or an access rule refused the flow.
    Refused = 1,
    /// No application is registered with the destination's name.
    UnknownName = 2,
    /// The flow specification cannot be met.
    SpecNotMet = 3,
    /// No channels or no memory are left.
    NoResources = 4,
}

impl Outcome {
    fn decode(code: u8) -> Result<Outcome, DecodeError> {
        Ok(match code {
            0 => Outcome::Accepted,
            1 => Outcome::Refused,
            2 => Outcome::UnknownName,
            3 => Outcome::SpecNotMet,
            4 => Outcome::NoResources,
            _ => return Err(DecodeError::Value("outcome")),
        })
    }
}

const HELLO: u8 = 1;
const REGISTER: u8 = 2;
const UNREGISTER: u8 = 3;
const ALLOCATE: u8 = 4;
const ALLOCATE_RESPONSE: u8 = 5;
const DEALLOCATE: u8 = 6;
const CREDIT: u8 = 7;

impl<'a> Control<'a> {
    /// Decodes one message, which must occupy all of `bytes`.
    ///
    /// # Errors
    /// What is wrong with the message. A hello of another version gives [`DecodeError::Version`],
    /// whatever follows the version.
    pub fn decode(bytes: &'a [u8]) -> Result<Control<'a>, DecodeError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            HELLO => Control::Hello(hello(&mut r)?),
            REGISTER => Control::Register { name: r.name()? },
            UNREGISTER => Control::Unregister { name: r.name()? },
            ALLOCATE => Control::Allocate {
                channel: channel(&mut r)?,
                window_bytes: window(&mut r)?,
                spec: r.spec()?,
                source: r.name()?,
                destination: r.name()?,
            },
            ALLOCATE_RESPONSE => response(&mut r)?,
            DEALLOCATE => Control::Deallocate {
                channel: channel(&mut r)?,
                reason: r.text()?,
            },
            CREDIT => Control::Credit {
                channel: channel(&mut r)?,
                limit_bytes: r.u64()?,
            },
            other => return Err(DecodeError::UnknownType(other)),
        };
        r.end()?;
        Ok(message)
    }

    /// Appends the encoded message to `out`. Names must satisfy [`crate::check_name`]; a reason is
    /// truncated to [`REASON_BYTES_MAX`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Control::Hello(h) => {
                out.push(HELLO);
                out.extend(VERSION.to_le_bytes());
                out.extend(h.sdu_bytes_max.to_le_bytes());
                out.extend(h.piece_bytes_max.to_le_bytes());
                out.extend(h.channels_max.to_le_bytes());
                out.extend(h.bundle_bytes_max.to_le_bytes());
                put_text(out, h.name);
            }
            Control::Register { name } => {
                out.push(REGISTER);
                put_text(out, name);
            }
            Control::Unregister { name } => {
                out.push(UNREGISTER);
                put_text(out, name);
            }
            Control::Allocate {
                channel,
                window_bytes,
                spec,
                source,
                destination,
            } => {
                out.push(ALLOCATE);
                out.extend(channel.number().to_le_bytes());
                out.extend(window_bytes.to_le_bytes());
                put_spec(out, &spec);
                put_text(out, source);
                put_text(out, destination);
            }
            Control::AllocateResponse {
                channel,
                window_bytes,
                outcome,
                reason,
            } => {
                out.push(ALLOCATE_RESPONSE);
                out.extend(channel.number().to_le_bytes());
                out.extend(window_bytes.to_le_bytes());
                out.push(outcome as u8);
                put_text(out, reason);
            }
            Control::Deallocate { channel, reason } => {
                out.push(DEALLOCATE);
                out.extend(channel.number().to_le_bytes());
                put_text(out, reason);
            }
            Control::Credit {
                channel,
                limit_bytes,
            } => {
                out.push(CREDIT);
                out.extend(channel.number().to_le_bytes());
                out.extend(limit_bytes.to_le_bytes());
            }
        }
    }
}

fn hello<'a>(r: &mut Reader<'a>) -> Result<Hello<'a>, DecodeError> {
    let version = r.u16()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let hello = Hello {
        sdu_bytes_max: r.u64()?,
        piece_bytes_max: r.u32()?,
        channels_max: r.u16()?,
        bundle_bytes_max: r.u32()?,
        name: r.name()?,
    };
    if hello.piece_bytes_max == 0 {
        return Err(DecodeError::Value("piece_bytes_max"));
    }
    Ok(hello)
}

fn response<'a>(r: &mut Reader<'a>) -> Result<Control<'a>, DecodeError> {
    let channel = channel(r)?;
    let window_bytes = r.u32()?;
    let outcome = Outcome::decode(r.u8()?)?;
    let window_is_right = match outcome {
        Outcome::Accepted => window_bytes >= WINDOW_BYTES_MIN,
        _ => window_bytes == 0,
    };
    if !window_is_right {
        return Err(DecodeError::Value("window_bytes"));
    }
    Ok(Control::AllocateResponse {
        channel,
        window_bytes,
        outcome,
        reason: r.text()?,
    })
}

fn channel(r: &mut Reader<'_>) -> Result<Channel, DecodeError> {
    match r.u16()? {
        0 => Err(DecodeError::Value("channel")),
        number => Ok(Channel::new(number)),
    }
}

fn window(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match r.u32()? {
        bytes if bytes < WINDOW_BYTES_MIN => Err(DecodeError::Value("window_bytes")),
        bytes => Ok(bytes),
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let cut = text.floor_char_boundary(REASON_BYTES_MAX);
    out.push(cut as u8);
    out.extend_from_slice(&text.as_bytes()[..cut]);
}

fn put_spec(out: &mut Vec<u8>, spec: &FlowSpec) {
    out.extend(spec.max_delay_us.to_le_bytes());
    out.extend(spec.max_jitter_us.to_le_bytes());
    out.extend(spec.max_sdu_gap.to_le_bytes());
    out.extend(spec.avg_bandwidth_bps.to_le_bytes());
    out.extend(spec.max_loss.to_le_bytes());
    out.push(u8::from(spec.in_order) | u8::from(spec.msg_boundaries) << 1);
}
