//! What the apps of tunnels share: two directions, and counters for what each refuses.

use std::any::Any;
use std::fmt;

use carina_engine::counter_file::Counter;
use carina_engine::frames::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports};
use carina_frame::Frame;
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use serde::{Deserialize, Serialize};

use crate::congestion::carry_mark;
use crate::metadata::{complete, forget};
use crate::outer::NotOurs;

/// Why a frame does not go into, or does not come out of, a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// To the south: no headroom, or too long.
    NoRoom,
    /// To the south: still to be cut.
    Unfinished,
    /// To the south: the tunnel carries no such packets.
    NotCarried,
    /// From the south: not for this tunnel.
    NotOurs,
    /// From the south: cut or malformed.
    Length,
    /// From the south: a wrong checksum.
    Checksum,
    /// From the south: a part of a packet.
    Fragment,
    /// From the south: another key, or network.
    Key,
    /// From the south: another session.
    Session,
    /// From the south: another cookie.
    Cookie,
    /// From the south: too many extension headers of IPv6, or one that has to be refused.
    Extensions,
    /// From the south: it met congestion, and the ends of what is within do not know the mark.
    Congested,
}

/// Names of counters, in the order of [`Refused`].
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

/// A counter for each reason that a tunnel has.
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

/// The port of what a tunnel carries, and of its packets.
pub const NORTH: usize = 0;
/// See [`NORTH`].
pub const SOUTH: usize = 1;
/// Both, as inputs and as outputs.
const PORTS: PortList = PortList::Named(&[Port::new("north"), Port::new("south")]);

/// A protocol of tunnels between two ends.
pub trait Tunnel: Send + 'static {
    /// The reasons for which it refuses frames. The app counts by them.
    const REASONS: &'static [Refused];

    /// Makes what the north gave a packet of the tunnel.
    ///
    /// # Errors
    /// The tunnel does not carry it.
    fn encapsulate(&self, frame: &mut Frame) -> Result<(), Refused>;

    /// Takes what is carried out of a packet from the south.
    ///
    /// # Errors
    /// The packet is not for this tunnel.
    fn decapsulate(&self, frame: &mut Frame) -> Result<(), Refused>;
}

/// What a file says of a tunnel.
pub trait TunnelKind: Any + Clone + PartialEq + fmt::Debug + Send + Sync {
    /// The name of the kind of app, as files of graphs have it.
    const KIND: &'static str;

    /// The protocol.
    type Tunnel: Tunnel;

    /// The tunnel that it describes.
    ///
    /// # Errors
    /// A value is wrong.
    fn tunnel(&self) -> Result<Self::Tunnel, AppError>;
}

/// A tunnel as an app of a graph. It takes any other configuration of its kind while it runs.
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
        // What cannot be made replaces nothing: `can_apply` has said so.
        if let Ok(tunnel) = self.0.tunnel() {
            app.tunnel = tunnel;
        }
    }
}

/// The app of a tunnel.
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

/// Takes the header of Ethernet, and padding behind the packet, off a frame of IPv4 or IPv6;
/// returns its Ethertype.
///
/// # Errors
/// It is something else, or cut.
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

/// Gives the packet of IP at `at`, which came out of a tunnel, the mark of congestion that it has
/// to have.
///
/// # Errors
/// It has to be dropped.
#[inline]
pub fn carry_mark_at(frame: &mut Frame, at: usize, outer_class: u8) -> Result<(), Refused> {
    let is_kept = carry_mark(outer_class, &mut frame.bytes_mut()[at..]);
    is_kept.then_some(()).ok_or(Refused::Congested)
}

/// Puts a header of Ethernet in front: with addresses of zeros, for `arp` or `nd` to fill in.
///
/// # Errors
/// There is no room.
pub fn put_ether(frame: &mut Frame, ethertype: u16) -> Result<(), Refused> {
    let mut header = [0; 14];
    header[12..].copy_from_slice(&ethertype.to_be_bytes());
    frame.prepend(&header).then_some(()).ok_or(Refused::NoRoom)
}

/// TTL or hop limit where nothing is said.
pub(crate) fn hop_limit() -> u8 {
    64
}

/// What a tunnel carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Whole frames.
    #[default]
    Ethernet,
    /// Packets of IPv4 and IPv6, without their header of Ethernet.
    Ip,
}
