//! Watches ports while echo requests and replies pass.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_graph::trace::{TraceRequest, TraceStream};
use carina_vnet::host_part::HostPart;
use carina_vnet::trace::{Act, Direction, Sightings, Spot};
use carina_wire::ether::{ETHERTYPE_ARP, Header};
use carina_wire::inet::{Arp4, ETHERTYPE_IPV4, Ipv4Header, PROTOCOL_ICMP};
use carina_wire::pcapng::{Item, Reader};

use crate::error::{Attempt, Error, Result};
use crate::paths::Hold;
use crate::port_selection::PortSelection;
use crate::vnet::Vnet;

/// A watch over ports of a network, whose thread reads the frames that pass.
#[derive(Debug)]
pub(super) struct Watch {
    is_enough: Arc<AtomicBool>,
    /// Holds the watched links in the engine.
    _hold: Option<Hold>,
    thread: Option<JoinHandle<Result<Vec<Seen>>>>,
}

/// A frame that concerns an echo request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    spot: Spot,
    time_ns: u64,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// An echo request or reply.
    Echo {
        direction: Direction,
        from: Ipv4Addr,
        to: Ipv4Addr,
    },
    /// An ICMP error of a router (RFC 792): its type and code in `kind`, the router, and the
    /// receiver.
    Error {
        kind: u8,
        from: Ipv4Addr,
        to: Ipv4Addr,
    },
    /// An ARP request of a node.
    Asks { for_address: Ipv4Addr },
}

impl Watch {
    /// Begins to watch all ports of a part; only those in `some` if the part has too many.
    pub(super) fn begin(
        (vnet, part): (&Vnet, &HostPart),
        counters: &Path,
        some: &[Spot],
    ) -> Result<Watch> {
        let mut spots: Vec<Spot> = if part.links.len() <= LINKS_MAX {
            part.links
                .iter()
                .flat_map(|link| spots_of(link.number))
                .collect()
        } else {
            some.to_vec()
        };
        spots.sort();
        spots.dedup();
        // The far end of a link to another host has no port here.
        let is_here = |spot: &Spot| {
            let link = part.link(spot.link);
            link.is_some_and(|link| spot.side < link.ends().count())
        };
        spots.retain(is_here);
        // A request that names no links would capture all of them.
        if spots.is_empty() {
            return Ok(Watch {
                is_enough: Arc::default(),
                _hold: None,
                thread: None,
            });
        }
        let mut watched: Vec<u32> = spots.iter().map(|spot| spot.link).collect();
        watched.dedup();
        let hold = vnet.hold(&watched)?;
        let ports = &vnet.port_selection();
        let links = spots.iter().enumerate();
        let request = TraceRequest {
            snap_bytes: Some(SNAP_BYTES),
            // In the capture, interfaces are ordered by link name; the name identifies the port.
            links: links
                .map(|(number, spot)| format!("{} as {number}", port_of(*spot, ports)))
                .collect(),
        };
        let stream = TraceStream::open(counters, &request)
            .map_err(|error| std::io::Error::other(error.to_string()))
            .attempt("watching the links")?;
        let is_enough = Arc::new(AtomicBool::new(false));
        let enough = Arc::clone(&is_enough);
        let thread = std::thread::Builder::new().name("way".into());
        let thread = thread.spawn(move || read(stream, &spots, &enough));
        Ok(Watch {
            is_enough,
            _hold: Some(hold),
            thread: Some(thread.attempt("watching the links")?),
        })
    }

    /// Ends the watch. Returns what was seen of echo requests from the addresses `own` to the
    /// address `to`.
    pub(super) fn end(mut self, own: &[Ipv4Addr], to: Ipv4Addr) -> Result<Sightings> {
        self.is_enough.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return Ok(Sightings::default());
        };
        let seen = thread.join().unwrap_or(Err(Error::Ended("the watch")))?;
        Ok(sightings_of(&seen, own, to))
    }
}

impl Drop for Watch {
    /// Ends the thread even if its result is not needed.
    fn drop(&mut self) {
        self.is_enough.store(true, Ordering::Release);
    }
}

fn spots_of(link: u32) -> impl Iterator<Item = Spot> {
    let acts = [Act::Sends, Act::Receives].into_iter();
    acts.flat_map(move |act| [0, 1].map(|side| Spot { link, side, act }))
}

fn port_of(spot: Spot, ports: &PortSelection) -> String {
    let port = match spot.act {
        Act::Sends => "output",
        Act::Receives => "input",
    };
    format!("{}.{port}", ports.app((spot.link, spot.side)))
}

/// Reads frames until the watch ends and the last ones have come.
fn read(mut stream: TraceStream, spots: &[Spot], is_enough: &AtomicBool) -> Result<Vec<Seen>> {
    let mut reader = Reader::new();
    let mut interfaces: Vec<Option<Spot>> = Vec::new();
    let (mut seen, mut end) = (Vec::new(), None);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let read = stream
            .read(&mut bytes, TURN)
            .attempt("watching the links")?;
        let Some(read) = read else { return Ok(seen) };
        reader.feed(&bytes[..read]);
        loop {
            let item = reader.poll().map_err(std::io::Error::other);
            match item.attempt("watching the links")? {
                None => break,
                Some(Item::Section) => interfaces.clear(),
                Some(Item::Interface(it)) => {
                    let number: Option<usize> = it.name.parse().ok();
                    interfaces.push(number.and_then(|number| spots.get(number).copied()));
                }
                Some(Item::Packet(packet)) => {
                    let spot = interfaces.get(packet.interface as usize).copied().flatten();
                    if let (Some(spot), Some(what)) = (spot, what(packet.bytes))
                        && seen.len() < SEEN_MAX
                    {
                        let time_ns = packet.time_ns;
                        seen.push(Seen {
                            spot,
                            time_ns,
                            what,
                        });
                    }
                }
            }
        }
        match end {
            None if is_enough.load(Ordering::Acquire) => {
                stream.finish().attempt("ending the watch")?;
                end = Some(Instant::now() + LAST);
            }
            Some(end) if Instant::now() > end => return Ok(seen),
            _ => {}
        }
    }
}

/// How a frame concerns an echo request; `None` if it concerns none.
fn what(frame: &[u8]) -> Option<What> {
    let (header, length) = Header::decode(frame, &[]).ok()?;
    let payload = &frame[length..];
    match header.ethertype {
        ETHERTYPE_ARP => {
            let arp = Arp4::decode(payload)?;
            let for_address = Ipv4Addr::from(arp.target.1);
            (!arp.is_reply).then_some(What::Asks { for_address })
        }
        ETHERTYPE_IPV4 => {
            let ip = Ipv4Header::decode(payload).ok()?;
            if ip.protocol != PROTOCOL_ICMP {
                return None;
            }
            let (from, to) = (Ipv4Addr::from(ip.source), Ipv4Addr::from(ip.destination));
            let kind = *payload.get(ip.header_bytes)?;
            match kind {
                8 => Some(What::Echo {
                    direction: Direction::There,
                    from,
                    to,
                }),
                0 => Some(What::Echo {
                    direction: Direction::Back,
                    from,
                    to,
                }),
                3 | 11 => Some(What::Error { kind, from, to }),
                _ => None,
            }
        }
        _ => None,
    }
}

/// What the frames show about echo requests from the addresses `own` to `peer`.
fn sightings_of(seen: &[Seen], own: &[Ipv4Addr], peer: Ipv4Addr) -> Sightings {
    let is_ours = |direction: Direction, from: Ipv4Addr, to: Ipv4Addr| match direction {
        Direction::There => own.contains(&from) && to == peer,
        Direction::Back => own.contains(&to) && from == peer,
    };
    let echoes = seen.iter().filter_map(|packet| match packet.what {
        What::Echo {
            direction,
            from,
            to,
        } if is_ours(direction, from, to) => Some((direction, packet)),
        _ => None,
    });
    let begin = echoes
        .clone()
        .map(|(_, packet)| packet.time_ns)
        .min()
        .unwrap_or(0);
    let mut sightings = Sightings::default();
    for (direction, it) in echoes {
        let sighting = sightings.entry(direction, it.spot);
        let after = (it.time_ns - begin) / 1000;
        sighting.frames += 1;
        sighting.after_us = Some(sighting.after_us.map_or(after, |first| first.min(after)));
    }
    for packet in seen {
        match packet.what {
            What::Error { kind, from, to } if own.contains(&to) => {
                *sightings.errors.entry((kind, from)).or_default() += 1;
            }
            What::Asks { for_address } if packet.spot.act == Act::Sends => {
                let key = (packet.spot, for_address);
                *sightings.asked_for.entry(key).or_default() += 1;
            }
            _ => {}
        }
    }
    sightings
}

/// Bytes captured of each frame; a header is only decoded with its complete packet.
const SNAP_BYTES: u32 = 2048;
const READ_BYTES: usize = 1 << 16;
const TURN: Duration = Duration::from_millis(20);
/// How long the agent waits for frames in flight when the watch ends.
const LAST: Duration = Duration::from_secs(1);
/// Largest number of frames that are kept, because other nodes may ping meanwhile.
const SEEN_MAX: usize = 100_000;
/// Largest number of links for which all ports are watched.
const LINKS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn seen(act: Act, time_ns: u64, what: What) -> Seen {
        let spot = Spot {
            link: 0,
            side: 0,
            act,
        };
        Seen {
            spot,
            time_ns,
            what,
        }
    }

    fn echo(direction: Direction, from: Ipv4Addr, to: Ipv4Addr) -> What {
        What::Echo {
            direction,
            from,
            to,
        }
    }

    #[test]
    fn only_echoes_of_the_two_are_counted() {
        let stranger = Ipv4Addr::new(10, 0, 0, 9);
        let all = [
            seen(Act::Sends, 5000, echo(Direction::There, A, B)),
            seen(Act::Sends, 9000, echo(Direction::There, A, B)),
            seen(Act::Sends, 1000, echo(Direction::There, stranger, B)),
            seen(Act::Receives, 8000, echo(Direction::Back, B, A)),
            seen(
                Act::Receives,
                1,
                What::Error {
                    kind: 3,
                    from: stranger,
                    to: A,
                },
            ),
        ];
        let sightings = sightings_of(&all, &[A], B);
        let sent = sightings.at(Direction::There, all[0].spot);
        assert_eq!((sent.frames, sent.after_us), (2, Some(0)));
        let back = sightings.at(Direction::Back, all[3].spot);
        assert_eq!((back.frames, back.after_us), (1, Some(3)));
        assert_eq!(sightings.spots().count(), 2);
        assert_eq!(sightings.errors[&(3, stranger)], 1);
    }

    #[test]
    fn frames_of_strangers_are_nothing() {
        for bytes in [&[][..], &[0; 13], &[0; 60], &[0xff; 200]] {
            assert_eq!(what(bytes), None);
        }
        let arp = Arp4 {
            is_reply: false,
            sender: ([2; 6], A.octets()),
            target: ([0; 6], B.octets()),
        };
        let mut frame = vec![0xff; 12];
        frame.extend(ETHERTYPE_ARP.to_be_bytes());
        frame.extend(arp.encode());
        assert_eq!(what(&frame), Some(What::Asks { for_address: B }));
    }
}
