//! The events of VMPI-HL for its owner, and the reasons for which a link is given up.

use std::fmt;

use carina_wire::FlowSpec;
use carina_wire::vmpi::{Channel, DecodeError, HeaderError, Outcome};

/// A change that the owner of an [`super::Endpoint`] must know of, in the order in which it
/// happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Both hellos were exchanged; flows can be allocated.
    Up {
        /// The peer's name.
        peer: String,
        /// What both sides accept.
        limits: Limits,
    },
    /// The link is gone and with it every channel; [`Event::Closed`] came before for each.
    Down {
        /// A short constant for counters, e.g. `credit-overrun`.
        code: &'static str,
        /// The whole story for people.
        reason: String,
    },
    /// The peer can reach an application under this name.
    PeerRegistered {
        /// The application's name.
        name: String,
    },
    /// It no longer can.
    PeerUnregistered {
        /// The application's name.
        name: String,
    },
    /// The peer asks for a flow to an application registered here; answer with
    /// [`super::Endpoint::respond`].
    Incoming {
        /// The channel it will use.
        channel: Channel,
        /// What it must offer.
        spec: FlowSpec,
        /// The asking application.
        source: String,
        /// The application asked for.
        destination: String,
    },
    /// A request of [`super::Endpoint::allocate`] was granted; data may flow.
    Allocated {
        /// The flow's channel.
        channel: Channel,
    },
    /// A request of [`super::Endpoint::allocate`] was refused; the channel is free again.
    Denied {
        /// The channel that the request had.
        channel: Channel,
        /// What kind of refusal.
        outcome: Outcome,
        /// The peer's words.
        reason: String,
    },
    /// An open or offered channel ended and not by [`super::Endpoint::deallocate`].
    Closed {
        /// The channel; it may be given to another flow at once.
        channel: Channel,
        /// How it ended.
        reason: CloseReason,
    },
    /// The sending limit of a channel was raised.
    Credit {
        /// The channel.
        channel: Channel,
    },
}

/// How a channel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer deallocated it, in its own words; empty when its application closed the flow.
    Peer(String),
    /// The link went down, for this reason.
    LinkDown(String),
}

/// The smaller of what both sides accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest SDU in bytes.
    pub sdu_bytes_max: u64,
    /// Longest piece in bytes without header.
    pub piece_bytes_max: u32,
    /// How many channels this side may have open that it asked for.
    pub channels_max: u16,
    /// Longest bundle in bytes without header; 0 for none.
    pub bundle_bytes_max: u32,
}

/// What the peer did that no correct peer does. It costs the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The record is shorter than a header.
    ShortRecord {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A data header with forbidden bits.
    Header(HeaderError),
    /// A control message that cannot be decoded.
    Control(DecodeError),
    /// A hello of another version.
    WrongVersion {
        /// The version offered.
        peer: u16,
    },
    /// Anything but a hello came first.
    NoHello,
    /// A second hello.
    SecondHello,
    /// The peer's node is there but said no hello in time.
    HelloTimeout,
    /// More bytes than the window grants.
    CreditOverrun {
        /// The channel.
        channel: Channel,
        /// Bytes beyond the limit.
        beyond_bytes: u64,
    },
    /// A piece longer than this side accepts.
    PieceTooLong {
        /// The channel.
        channel: Channel,
        /// Its length.
        bytes: usize,
    },
    /// A bundle that is longer than this side accepts, no multiple of 8 bytes, or between the
    /// pieces of an SDU.
    BadBundle {
        /// The channel.
        channel: Channel,
    },
    /// An SDU longer than this side accepts.
    SduTooLong {
        /// The channel.
        channel: Channel,
    },
    /// An allocation on a channel of this side's half or on one in use.
    BadChannel {
        /// The channel.
        channel: Channel,
    },
    /// An answer to a question that was not asked.
    UnexpectedResponse {
        /// The channel.
        channel: Channel,
    },
    /// A credit that goes back or beyond what was sent.
    BadCredit {
        /// The channel.
        channel: Channel,
    },
    /// More registered names than this side remembers.
    TooManyNames,
    /// More requests than answers can be queued for.
    Backlog,
}

impl Violation {
    /// A constant for counters.
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
                    "record of {bytes} bytes, a VMPI header has 4, that of a bundle 8"
                )
            }
            Violation::Header(e) => e.fmt(f),
            Violation::Control(e) => e.fmt(f),
            Violation::WrongVersion { peer } => DecodeError::Version(*peer).fmt(f),
            Violation::NoHello => write!(f, "the first control message is not a hello"),
            Violation::SecondHello => write!(f, "the peer said hello twice"),
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
                    "channel {channel} is in use or not the peer's to allocate"
                )
            }
            Violation::UnexpectedResponse { channel } => {
                write!(f, "channel {channel}: an answer to no request")
            }
            Violation::BadCredit { channel } => {
                write!(
                    f,
                    "channel {channel}: credit goes back or beyond what was sent"
                )
            }
            Violation::TooManyNames => {
                write!(
                    f,
                    "the peer registered more than {} names",
                    super::NAMES_MAX
                )
            }
            Violation::Backlog => write!(f, "the peer asks but does not read the answers"),
        }
    }
}

impl std::error::Error for Violation {}
