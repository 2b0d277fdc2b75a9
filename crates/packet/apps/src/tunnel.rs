//! The app of a tunnel, for any tunnel protocol: two directions, and a counter for each reason to
//! drop.

use std::any::Any;
use std::fmt;

use carina_frame::Frame;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports};
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use serde::{Deserialize, Serialize};

use crate::congestion::carry_mark;
use crate::metadata::{complete, forget};
use crate::outer::NotOurs;

/// Why a frame is dropped at the entry (from `north`) or exit (from `south`) of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// From `north`: the frame has no headroom, or is too long.
    NoRoom,
    /// From `north`: the frame's segmentation is still pending.
    Unfinished,
    /// From `north`: the tunnel does not carry this protocol.
    NotCarried,
    /// From `south`: the packet is not for this tunnel.
    NotOurs,
    /// From `south`: the packet is truncated or malformed.
    Length,
    /// From `south`: a checksum is wrong.
    Checksum,
    /// From `south`: the packet is a fragment.
    Fragment,
    /// From `south`: the packet has another key or network number.
    Key,
    /// From `south`: the packet has another session.
    Session,
    /// From `south`: the packet has another cookie.
    Cookie,
    /// From `south`: the packet has too many IPv6 extension headers, or one that must be refused.
    Extensions,
    /// From `south`: the packet met congestion, and the inner packet is not ECN-capable.
    Congested,
}

/// Names of the counters, in the order of [`Refused`].
const NAMES: [&str; REASONS] = [
    "drop_no_room",
    "drop_unfinished",
    "drop_not_carried",
    "drop_not_ours",
    "drop_length",
    "drop_checksum",
    "drop_fragment",
    "drop_key",
    "drop_session",
    "drop_cookie",
    "drop_extensions",
    "drop_congested",
];
const REASONS: usize = 12;

impl From<NotOurs> for Refused {
    fn from(reason: NotOurs) -> Refused {
        match reason {
            NotOurs::Other => Refused::NotOurs,
            NotOurs::Length => Refused::Length,
            NotOurs::Checksum => Refused::Checksum,
            NotOurs::Fragment => Refused::Fragment,
            NotOurs::Extensions => Refused::Extensions,
        }
    }
}

/// A counter for each reason that the tunnel protocol has.
struct Counters([Option<Counter>; REASONS]);

impl Counters {
    fn new(reasons: &[Refused], context: &mut AppContext<'_>) -> Counters {
        let mut counters = [const { None }; REASONS];
        for reason in reasons {
            let number = *reason as usize;
            counters[number] = Some(context.counter(NAMES[number]));
        }
        Counters(counters)
    }

    fn add(&self, counts: [u64; REASONS]) {
        for ((counter, count), name) in self.0.iter().zip(counts).zip(NAMES) {
            debug_assert!(count == 0 || counter.is_some(), "{name} is not counted");
            if let Some(counter) = counter {
                counter.add(count);
            }
        }
    }
}

/// The port of the tunnelled frames.
pub const NORTH: usize = 0;
/// The port of the tunnel's packets.
pub const SOUTH: usize = 1;
/// Both ports, as inputs and as outputs.
const PORTS: PortList = PortList::Named(&[Port::new("north"), Port::new("south")]);

/// A tunnel protocol with the addresses of its two ends: turns frames into packets of the tunnel
/// and back.
pub trait Tunnel: Send + 'static {
    /// The reasons for which this protocol drops frames; the app has a counter for each.
    const REASONS: &'static [Refused];

    /// Turns a frame from `north` into a packet of the tunnel.
    ///
    /// # Errors
    /// The tunnel cannot carry the frame, which must be dropped.
    fn encapsulate(&self, frame: &mut Frame) -> Result<(), Refused>;

    /// Turns a packet from `south` into the frame that it carries.
    ///
    /// # Errors
    /// The packet is not for this tunnel, or is invalid; it must be dropped.
    fn decapsulate(&self, frame: &mut Frame) -> Result<(), Refused>;
}

/// A configuration from which a [`Tunnel`] can be made.
pub trait TunnelKind: Any + Clone + PartialEq + fmt::Debug + Send + Sync {
    /// Name of the kind of app in graph files.
    const KIND: &'static str;

    /// The tunnel protocol.
    type Tunnel: Tunnel;

    /// Makes the tunnel that this configuration describes.
    ///
    /// # Errors
    /// A value is invalid.
    fn tunnel(&self) -> Result<Self::Tunnel, AppError>;
}

/// The configuration of a tunnel's app. A running app can change to any other configuration of the
/// same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TunnelConfig<K>(pub K);

impl<K: TunnelKind> AppConfig for TunnelConfig<K> {
    const KIND: &'static str = K::KIND;
    const INPUTS: PortList = PORTS;
    const OUTPUTS: PortList = PORTS;

    type App = TunnelApp<K::Tunnel>;

    fn check(&self) -> Result<(), AppError> {
        self.0.tunnel().map(drop)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<TunnelApp<K::Tunnel>, AppError> {
        Ok(TunnelApp {
            tunnel: self.0.tunnel()?,
            counters: Counters::new(K::Tunnel::REASONS, context),
        })
    }

    fn can_apply(&self, _old: &TunnelConfig<K>) -> bool {
        true
    }

    fn apply(&self, app: &mut TunnelApp<K::Tunnel>) {
        // This cannot fail, because `can_apply` has made the same value.
        if let Ok(tunnel) = self.0.tunnel() {
            app.tunnel = tunnel;
        }
    }
}

/// The running app of a tunnel: encapsulates frames from `north`, and decapsulates packets from
/// `south`.
pub struct TunnelApp<T> {
    tunnel: T,
    counters: Counters,
}

impl<T: Tunnel> FrameApp for TunnelApp<T> {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let mut refused = [0; REASONS];
        ports.forward(NORTH, SOUTH, |frame| {
            let done = if complete(frame) {
                self.tunnel.encapsulate(frame)
            } else {
                Err(Refused::Unfinished)
            };
            done.map_err(|reason| refused[reason as usize] += 1).is_ok()
        });
        ports.forward(SOUTH, NORTH, |frame| {
            let done = self.tunnel.decapsulate(frame);
            forget(frame);
            done.map_err(|reason| refused[reason as usize] += 1).is_ok()
        });
        self.counters.add(refused);
    }
}

/// Removes the Ethernet header of an IPv4 or IPv6 frame, and padding behind the packet; returns the
/// Ethertype.
///
/// # Errors
/// The frame is not IP, or is truncated.
pub fn strip_ether(frame: &mut Frame) -> Result<u16, Refused> {
    let head = frame
        .bytes()
        .first_chunk::<20>()
        .ok_or(Refused::NotCarried)?;
    let ethertype = u16::from_be_bytes([head[12], head[13]]);
    let half = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let length = match (ethertype, head[14] >> 4) {
        (ETHERTYPE_IPV4, 4) => half(16),
        (ETHERTYPE_IPV6, 6) => 40 + half(18),
        _ => return Err(Refused::NotCarried),
    };
    if frame.len() < 14 + length || length < 20 {
        return Err(Refused::NotCarried);
    }
    frame.truncate(14 + length);
    frame.advance(14);
    Ok(ethertype)
}

/// Copies the congestion mark of a tunnel's outer header into the IP packet at offset `at` of the
/// decapsulated frame.
///
/// # Errors
/// The frame must be dropped: its packet is not ECN-capable.
#[inline]
pub fn carry_mark_at(frame: &mut Frame, at: usize, outer_class: u8) -> Result<(), Refused> {
    let is_kept = carry_mark(outer_class, &mut frame.bytes_mut()[at..]);
    is_kept.then_some(()).ok_or(Refused::Congested)
}

/// Adds an Ethernet header with zeros as addresses, which an app `arp` or `nd` behind the tunnel
/// replaces.
///
/// # Errors
/// The frame has no room.
pub fn put_ether(frame: &mut Frame, ethertype: u16) -> Result<(), Refused> {
    let mut header = [0; 14];
    header[12..].copy_from_slice(&ethertype.to_be_bytes());
    frame.prepend(&header).then_some(()).ok_or(Refused::NoRoom)
}

/// Default TTL or hop limit.
pub(crate) fn hop_limit() -> u8 {
    64
}

/// What a tunnel carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Whole Ethernet frames.
    #[default]
    Ethernet,
    /// IPv4 and IPv6 packets, without Ethernet header.
    Ip,
}
