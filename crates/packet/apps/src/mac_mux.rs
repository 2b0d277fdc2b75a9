//! **mac_mux**: shares an uplink among ports with known MAC addresses and VLANs, like the switch
//! inside a network card.
//!
//! A frame to the address of a port goes to that port. A frame to a group address goes to all ports
//! of the VLAN and to the uplink. A frame to any other destination goes to the uplink, and to ports
//! of the VLAN without an address. No frame goes back to where it came from. The app learns no
//! addresses: a guest that uses another's address as its source cannot attract that guest's frames.
//!
//! - inputs, outputs: `uplink`, which may be unlinked; and an input and an output per port
//! - configuration:
//!   - `ports`: a list of `{ name, mac, vlan }`. `mac` is the address of the station; a port
//!     without `mac` gets the frames that are for no other port. `vlan`, 1 to 4094: the port's
//!     frames are tagged at the uplink and untagged at the port. A port without `vlan` sends and
//!     gets frames unchanged, but none with the tag of a VLAN of another port
//!   - `tpid`: type of the tags, 0x8100 or 0x88a8 (default: 0x8100)
//! - counters: `flooded`: frames to several places; `drop_same_port`; `drop_other_station`: frames
//!   from the uplink to an address of no port; `drop_no_place`: frames that have no other port to
//!   go to; `drop_foreign_vlan`: frames of a port with the tag of another port's VLAN;
//!   `drop_short`: frames without MAC addresses; `drop_no_room`: frames without headroom for the
//!   tag; `drop_unfinished`: frames whose segmentation is still pending; `drop_no_frame`: copies
//!   for which the pool had no frame; `drop_port_name`: frames of a port that is not in the list
//! - cost: a binary search in the list of addresses, a move of 12 bytes for a tag; a flooded frame
//!   is copied for each place but one

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, PortNames, Ports};
use carina_wire::ether::{Mac, TPID_CUSTOMER, VLAN_MAX};
use serde::{Deserialize, Serialize};

use crate::mac_text::MacText;
use crate::metadata::complete;
use crate::vlan::{Tag, pop_tag, push_tag, vlan_of};

/// The configuration of the app `mac_mux`, which shares an uplink among ports with known MAC
/// addresses and VLANs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MacMuxConfig {
    /// The ports, without the uplink.
    pub ports: Vec<MuxPort>,
    /// Type (TPID) of the VLAN tags at the uplink, 0x8100 or 0x88a8.
    #[serde(default = "customer")]
    pub tpid: u16,
}

/// A port of the app `mac_mux`, with the station and the VLAN behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuxPort {
    /// Name of the port's input and output.
    pub name: String,
    /// MAC address of the station behind the port; `None` for a port that gets the frames which are
    /// for no other port.
    pub mac: Option<MacText>,
    /// VLAN of the port; `None` passes frames unchanged.
    pub vlan: Option<u16>,
}

fn customer() -> u16 {
    TPID_CUSTOMER
}

impl Default for MacMuxConfig {
    fn default() -> MacMuxConfig {
        MacMuxConfig {
            ports: Vec::new(),
            tpid: customer(),
        }
    }
}

/// The name of the port to the uplink.
pub const UPLINK: &str = "uplink";

/// Why a configuration of the app `mac_mux` is invalid.
#[derive(Debug, thiserror::Error)]
enum MacMuxError {
    #[error("port {0}: two ports have this name")]
    TwoNames(String),
    #[error("port {UPLINK}: this name is reserved for the uplink")]
    Uplink,
    #[error("port {name}: mac = {mac} is a group address: must be the address of one station")]
    Group { name: String, mac: Mac },
    #[error("port {name}: mac = {mac}: port {other} in the same VLAN has this address too")]
    TwoAddresses {
        name: String,
        mac: Mac,
        other: String,
    },
    #[error("port {name}: vlan = {vlan}: must be 1 to {VLAN_MAX}")]
    Vlan { name: String, vlan: u16 },
}

impl MacMuxConfig {
    fn check_ports(&self) -> Result<(), AppError> {
        Tag::new(self.tpid, 1, 0)?;
        for (at, port) in self.ports.iter().enumerate() {
            self.check_port(port, &self.ports[..at])?;
        }
        Ok(())
    }

    fn check_port(&self, port: &MuxPort, before: &[MuxPort]) -> Result<(), MacMuxError> {
        let name = || port.name.clone();
        if port.name == UPLINK {
            return Err(MacMuxError::Uplink);
        }
        if before.iter().any(|other| other.name == port.name) {
            return Err(MacMuxError::TwoNames(name()));
        }
        if let Some(vlan) = port.vlan
            && !(1..=VLAN_MAX).contains(&vlan)
        {
            return Err(MacMuxError::Vlan { name: name(), vlan });
        }
        let Some(MacText(mac)) = port.mac else {
            return Ok(());
        };
        if mac.is_group() {
            return Err(MacMuxError::Group { name: name(), mac });
        }
        let is_same = |other: &&MuxPort| other.vlan == port.vlan && other.mac == port.mac;
        match before.iter().find(is_same) {
            None => Ok(()),
            Some(other) => Err(MacMuxError::TwoAddresses {
                name: name(),
                mac,
                other: other.name.clone(),
            }),
        }
    }
}

/// The running app `mac_mux`: shares an uplink among ports with known MAC addresses and VLANs.
pub struct MacMux {
    config: MacMuxConfig,
    names: [Vec<String>; 2],
    pool: Pool,
    /// Where the frames of each input come from.
    inputs: Vec<Side>,
    uplink: Option<usize>,
    places: Vec<Place>,
    /// The place of each address, ordered by [`key`].
    stations: Vec<(u64, usize)>,
    /// For each VLAN, whether a port has it.
    has_vlan: Vec<bool>,
    counters: Counters,
}

/// Where frames come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Uplink,
    Place(usize),
    Unknown,
}

/// A port at run time.
#[derive(Clone, Copy)]
struct Place {
    /// VLAN of the port, or 0 if it has none.
    vlan: u16,
    has_address: bool,
    tag: Option<Tag>,
    output: Option<usize>,
}

struct Counters {
    flooded: Counter,
    same_port: Counter,
    other_station: Counter,
    no_place: Counter,
    foreign_vlan: Counter,
    short: Counter,
    no_room: Counter,
    unfinished: Counter,
    no_frame: Counter,
    port_name: Counter,
}

/// VLAN and MAC address as one number.
fn key(vlan: u16, mac: &[u8; 6]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&vlan.to_be_bytes());
    bytes[2..].copy_from_slice(mac);
    u64::from_be_bytes(bytes)
}

impl AppConfig for MacMuxConfig {
    const KIND: &'static str = "mac_mux";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::Any;

    type App = MacMux;

    fn check(&self) -> Result<(), AppError> {
        self.check_ports()
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<MacMux, AppError> {
        Ok(MacMux {
            config: self.clone(),
            names: Default::default(),
            pool: context.pool().clone(),
            inputs: Vec::new(),
            uplink: None,
            places: Vec::new(),
            stations: Vec::new(),
            has_vlan: Vec::new(),
            counters: Counters {
                flooded: context.counter("flooded"),
                same_port: context.counter("drop_same_port"),
                other_station: context.counter("drop_other_station"),
                no_place: context.counter("drop_no_place"),
                foreign_vlan: context.counter("drop_foreign_vlan"),
                short: context.counter("drop_short"),
                no_room: context.counter("drop_no_room"),
                unfinished: context.counter("drop_unfinished"),
                no_frame: context.counter("drop_no_frame"),
                port_name: context.counter("drop_port_name"),
            },
        })
    }

    fn can_apply(&self, _old: &MacMuxConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut MacMux) {
        app.config = self.clone();
        app.rebuild();
    }
}

impl FrameApp for MacMux {
    fn rewired(&mut self, ports: &PortNames<'_>) {
        self.names = [ports.inputs.to_vec(), ports.outputs.to_vec()];
        self.rebuild();
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        for input in 0..ports.inputs() {
            match self.inputs[input] {
                Side::Uplink => ports.each(input, |frame, ports| self.take_of_uplink(frame, ports)),
                Side::Place(from) => {
                    ports.each(input, |frame, ports| self.take_of_port(from, frame, ports));
                }
                Side::Unknown => {
                    self.counters.port_name.add(ports.waiting(input) as u64);
                    ports.drain(input, drop);
                }
            }
        }
    }
}

impl MacMux {
    /// Computes the tables from configuration and links, when either has changed.
    fn rebuild(&mut self) {
        let [inputs, outputs] = &self.names;
        let ports = &self.config.ports;
        let side_of = |name: &String| match ports.iter().position(|port| port.name == *name) {
            Some(place) => Side::Place(place),
            None if name == UPLINK => Side::Uplink,
            None => Side::Unknown,
        };
        self.inputs = inputs.iter().map(side_of).collect();
        let output_of = |name: &str| outputs.iter().position(|output| output == name);
        self.uplink = output_of(UPLINK);
        self.has_vlan = vec![false; usize::from(VLAN_MAX) + 2];
        self.stations.clear();
        self.places.clear();
        for (at, port) in ports.iter().enumerate() {
            let vlan = port.vlan.unwrap_or(0);
            self.has_vlan[usize::from(vlan)] = true;
            if let Some(MacText(mac)) = port.mac {
                self.stations.push((key(vlan, &mac.0), at));
            }
            self.places.push(Place {
                vlan,
                has_address: port.mac.is_some(),
                tag: (port.vlan).and_then(|vlan| Tag::new(self.config.tpid, vlan, 0).ok()),
                output: output_of(&port.name),
            });
        }
        self.stations.sort_unstable();
    }

    /// The VLAN of a frame's tag, if a port has this VLAN.
    fn taken_vlan(&self, frame: &Frame) -> Option<u16> {
        let vlan = vlan_of(frame.bytes(), self.config.tpid)?;
        let is_taken = vlan != 0 && self.has_vlan[usize::from(vlan)];
        is_taken.then_some(vlan)
    }

    fn place_of(&self, vlan: u16, mac: &[u8; 6]) -> Option<usize> {
        let key = key(vlan, mac);
        let found = self.stations.binary_search_by_key(&key, |(key, _)| *key);
        found.ok().map(|at| self.stations[at].1)
    }

    fn take_of_uplink(&mut self, mut frame: Frame, ports: &mut Ports<'_>) {
        if frame.len() < MAC_HEADER {
            return self.counters.short.add(1);
        }
        let vlan = self.taken_vlan(&frame);
        if vlan.is_some() {
            pop_tag(&mut frame);
        }
        let Some(to) = frame.bytes().first_chunk::<6>().copied() else {
            return self.counters.short.add(1);
        };
        let vlan = vlan.unwrap_or(0);
        match self.place_of(vlan, &to) {
            Some(place) => self.give(place, frame, ports),
            None => self.flood(None, vlan, frame, ports),
        }
    }

    fn take_of_port(&mut self, from: usize, frame: Frame, ports: &mut Ports<'_>) {
        let Some(to) = frame.bytes().first_chunk::<6>().copied() else {
            return self.counters.short.add(1);
        };
        if frame.len() < MAC_HEADER {
            return self.counters.short.add(1);
        }
        let vlan = self.places[from].vlan;
        if vlan == 0 && self.taken_vlan(&frame).is_some() {
            return self.counters.foreign_vlan.add(1);
        }
        match self.place_of(vlan, &to) {
            Some(place) if place == from => self.counters.same_port.add(1),
            Some(place) => self.give(place, frame, ports),
            None => self.flood(Some(from), vlan, frame, ports),
        }
    }

    fn give(&self, place: usize, frame: Frame, ports: &mut Ports<'_>) {
        match self.places[place].output {
            Some(output) => ports.transmit(output, frame),
            None => self.counters.no_place.add(1),
        }
    }

    /// Sends a frame to all ports of the VLAN that should get it and, if it came from a port, to
    /// the uplink.
    fn flood(&self, from: Option<usize>, vlan: u16, frame: Frame, ports: &mut Ports<'_>) {
        let is_group = frame.bytes().first().is_some_and(|first| first & 1 != 0);
        let mut last = None;
        for (at, place) in self.places.iter().enumerate() {
            let wants = place.vlan == vlan && (is_group || !place.has_address);
            let output = place.output.filter(|_| wants && from != Some(at));
            let Some(output) = output else { continue };
            if let Some(before) = last.replace(output) {
                self.copy(&frame, before, ports);
            }
        }
        match (from, self.uplink) {
            (Some(from), Some(uplink)) => {
                if let Some(last) = last {
                    self.counters.flooded.add(1);
                    self.copy(&frame, last, ports);
                }
                self.leave(self.places[from].tag, uplink, frame, ports);
            }
            _ => match last {
                Some(last) => {
                    self.counters.flooded.add(1);
                    ports.transmit(last, frame);
                }
                None if from.is_none() => self.counters.other_station.add(1),
                None => self.counters.no_place.add(1),
            },
        }
    }

    fn copy(&self, frame: &Frame, output: usize, ports: &mut Ports<'_>) {
        match self.pool.copy_of(frame) {
            Some(copy) => ports.transmit(output, copy),
            None => self.counters.no_frame.add(1),
        }
    }

    fn leave(&self, tag: Option<Tag>, uplink: usize, mut frame: Frame, ports: &mut Ports<'_>) {
        if let Some(tag) = tag {
            if !complete(&mut frame) {
                return self.counters.unfinished.add(1);
            }
            if !push_tag(&mut frame, tag) {
                return self.counters.no_room.add(1);
            }
        }
        ports.transmit(uplink, frame);
    }
}

/// Length of destination, source and Ethertype, in bytes.
const MAC_HEADER: usize = 14;
