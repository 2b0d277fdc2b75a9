//! Events that VMPI-HL reports to its owner, and the violations for which it gives up a link.

use std::fmt;

use carina_wire::FlowSpec;
use carina_wire::vmpi::{Channel, DecodeError, HeaderError, Outcome};

/// A change that an [`super::Endpoint`] reports to its owner. Events come in the order in which the
/// changes happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The two sides have exchanged HELLO messages; flows can be allocated.
    Up {
        /// Name of the peer's system, from its HELLO.
        peer: String,
        /// What each side may send on the link.
        limits: Limits,
    },
    /// The link is down, and every channel has ended. An [`Event::Closed`] precedes this event for
    /// each channel that this side had not deallocated itself.
    Down {
        /// A short constant that names the reason in counters, e.g. `credit-overrun`.
        code: &'static str,
        /// The reason in full, as text for people.
        reason: String,
    },
    /// The peer registered an application name: this side can now allocate flows to the name.
    PeerRegistered {
        /// Name of the application that the peer registered.
        name: String,
    },
    /// The peer no longer offers an application under this name.
    PeerUnregistered {
        /// Name of the application that the peer no longer offers.
        name: String,
    },
    /// The peer requests a flow to an application that is registered on this side. The owner
    /// answers with [`super::Endpoint::respond`].
    Incoming {
        /// The channel that the flow will use.
        channel: Channel,
        /// The flow specification that the peer requests.
        spec: FlowSpec,
        /// Name of the application that requests the flow.
        source: String,
        /// Name of the application that the flow is for.
        destination: String,
    },
    /// The peer accepted a request of [`super::Endpoint::allocate`]; data may flow.
    Allocated {
        /// The channel that carries the new flow.
        channel: Channel,
    },
    /// The peer refused a request of [`super::Endpoint::allocate`]; the channel is free again.
    Denied {
        /// The channel that the request had.
        channel: Channel,
        /// The kind of refusal.
        outcome: Outcome,
        /// The peer's reason, as text for people.
        reason: String,
    },
    /// A channel ended, but not through [`super::Endpoint::deallocate`]: the peer deallocated it,
    /// or the link went down.
    Closed {
        /// The channel that has ended. The next flow may have the same number.
        channel: Channel,
        /// Why the channel ended.
        reason: CloseReason,
    },
    /// The peer raised this side's sending limit on a channel: the owner may send more there.
    Credit {
        /// The channel.
        channel: Channel,
    },
}

/// Why a channel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer deallocated the channel, for this reason. The text is empty when the peer's
    /// application closed the flow.
    Peer(String),
    /// The link went down, for this reason.
    LinkDown(String),
}

/// The limits of a link. Each limit in bytes is the smaller of the values that the two sides
/// accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest SDU that may be sent on the link, in bytes.
    pub sdu_bytes_max: u64,
    /// Longest piece of an SDU that may be sent on the link, in bytes without header.
    pub piece_bytes_max: u32,
    /// Largest number of channels that this side may have open at its own request.
    pub channels_max: u16,
    /// Longest bundle that may be sent on the link, in bytes without header; 0 if no bundles may be
    /// sent.
    pub bundle_bytes_max: u32,
}

/// How the peer broke the VMPI protocol, which no correct peer does. The endpoint gives up the link
/// for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The record is shorter than a VMPI header.
    ShortRecord {
        /// Length of the record in bytes.
        bytes: usize,
    },
    /// A data header has reserved bits set.
    Header(HeaderError),
    /// A control message cannot be decoded.
    Control(DecodeError),
    /// A HELLO message with a protocol version other than this side's.
    WrongVersion {
        /// The version in the peer's HELLO.
        peer: u16,
    },
    /// The first message of the peer was not HELLO.
    NoHello,
    /// The peer sent a second HELLO on the same link.
    SecondHello,
    /// The peer's node is alive but sent no HELLO within [`super::HELLO_TIMEOUT`].
    HelloTimeout,
    /// The peer sent more bytes on a channel than it had credit for.
    CreditOverrun {
        /// The channel on which the peer exceeded its credit.
        channel: Channel,
        /// Number of bytes by which the peer exceeded the limit.
        beyond_bytes: u64,
    },
    /// A piece that is longer than this side accepts.
    PieceTooLong {
        /// The channel on which the piece arrived.
        channel: Channel,
        /// Length of the piece in bytes, without header.
        bytes: usize,
    },
    /// A bundle that is longer than this side accepts, has a length that is not a multiple of 8
    /// bytes, or arrives between the pieces of an SDU.
    BadBundle {
        /// The channel on which the bundle arrived.
        channel: Channel,
    },
    /// An SDU that is longer than this side accepts.
    SduTooLong {
        /// The channel on which the SDU arrived.
        channel: Channel,
    },
    /// An ALLOCATE for a channel that is in use, or that only this side may open.
    BadChannel {
        /// The channel that the ALLOCATE names.
        channel: Channel,
    },
    /// An ALLOCATE_RESPONSE for a channel on which this side has no open request.
    UnexpectedResponse {
        /// The channel that the ALLOCATE_RESPONSE names.
        channel: Channel,
    },
    /// A CREDIT whose limit decreases, or exceeds what a correct receiver can grant.
    BadCredit {
        /// The channel that the CREDIT names.
        channel: Channel,
    },
    /// The peer registered more than [`super::NAMES_MAX`] names.
    TooManyNames,
    /// The peer sends requests faster than this side can send the answers; too many answers wait.
    Backlog,
}

impl Violation {
    /// Returns a short constant by which counters name the violation.
    pub fn code(&self) -> &'static str {
        match self {
            Violation::ShortRecord { .. } => "short-record",
            Violation::Header(_) => "bad-header",
            Violation::Control(_) => "bad-control",
            Violation::WrongVersion { .. } => "wrong-version",
            Violation::NoHello => "no-hello",
            Violation::SecondHello => "second-hello",
            Violation::HelloTimeout => "hello-timeout",
            Violation::CreditOverrun { .. } => "credit-overrun",
            Violation::PieceTooLong { .. } => "piece-too-long",
            Violation::BadBundle { .. } => "bad-bundle",
            Violation::SduTooLong { .. } => "sdu-too-long",
            Violation::BadChannel { .. } => "bad-channel",
            Violation::UnexpectedResponse { .. } => "unexpected-response",
            Violation::BadCredit { .. } => "bad-credit",
            Violation::TooManyNames => "too-many-names",
            Violation::Backlog => "backlog",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::ShortRecord { bytes } => {
                write!(
                    f,
                    "a record has {bytes} bytes; a VMPI header needs 4, the header of a bundle 8"
                )
            }
            Violation::Header(e) => e.fmt(f),
            Violation::Control(e) => e.fmt(f),
            Violation::WrongVersion { peer } => DecodeError::Version(*peer).fmt(f),
            Violation::NoHello => write!(f, "the first control message is not a hello"),
            Violation::SecondHello => write!(f, "the peer sent a second hello"),
            Violation::HelloTimeout => {
                write!(f, "no hello within {} s", super::HELLO_TIMEOUT.as_secs())
            }
            Violation::CreditOverrun {
                channel,
                beyond_bytes,
            } => {
                write!(
                    f,
                    "channel {channel}: {beyond_bytes} bytes beyond the credit limit"
                )
            }
            Violation::PieceTooLong { channel, bytes } => {
                write!(f, "channel {channel}: a piece of {bytes} bytes is too long")
            }
            Violation::BadBundle { channel } => write!(
                f,
                "channel {channel}: a bundle that is too long, not padded, or in the middle of an SDU"
            ),
            Violation::SduTooLong { channel } => write!(f, "channel {channel}: SDU too long"),
            Violation::BadChannel { channel } => {
                write!(
                    f,
                    "the peer allocated channel {channel}, which is in use or not in the peer's \
                     range"
                )
            }
            Violation::UnexpectedResponse { channel } => {
                write!(f, "channel {channel}: an answer without a request")
            }
            Violation::BadCredit { channel } => {
                write!(
                    f,
                    "channel {channel}: the peer's credit decreases, or exceeds what was sent"
                )
            }
            Violation::TooManyNames => {
                write!(
                    f,
                    "the peer registered more than {} names",
                    super::NAMES_MAX
                )
            }
            Violation::Backlog => write!(
                f,
                "the peer sends requests but does not read the \
                answers"
            ),
        }
    }
}

impl std::error::Error for Violation {}
