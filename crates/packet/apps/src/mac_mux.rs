//! **mac_mux**: shares an uplink among ports that have addresses and VLANs, as the switch in a
//! network card does.
//!
//! A frame for the address of a port goes to this port. A group address goes to all ports of the
//! VLAN and to the uplink, any other destination to the uplink and to ports of the VLAN without an
//! address. Nothing goes back to where it came from, and nothing is learned: a guest that sends
//! with another's address takes no frame from it.
//!
//! - inputs, outputs: `uplink`, which may stay without a link; and one of each for every port
//! - configuration:
//!   - `ports`: a list of `{ name, mac, vlan }`. `mac` is the station's address; a port without one
//!     gets what is for no other. `vlan`, 1 to 4094: at the uplink the port's frames have its tag;
//!     the port itself sees none. A port without `vlan` sends and gets frames as they are, but none
//!     with the tag of a VLAN that another port has
//!   - `tpid`: the type of tag, 0x8100 where nothing is said, or 0x88a8
//! - counters: `flooded`, frames of which copies were made or could have been; `drop_same_port`;
//!   `drop_other_station`: from the uplink, for the address of no port; `drop_no_place`: for
//!   others, and there is no other port; `drop_foreign_vlan`: a port's frame with the tag of
//!   another's VLAN; `drop_short`: no MAC addresses; `drop_no_room`: no headroom for the tag;
//!   `drop_unfinished`: still to be cut; `drop_no_frame`: the pool had none for a copy;
//!   `drop_port_name`: of a port that is not in the list
//! - cost: a search by halves in the list of addresses, a move of 12 bytes for a tag; a flooded
//!   frame is copied for each place but one

use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FrameApp, PortList, PortNames, Ports,
};
use carina_frame::{Frame, Pool};
use carina_wire::ether::{Mac, TPID_CUSTOMER, VLAN_MAX};
use serde::{Deserialize, Serialize};

use crate::mac_text::MacText;
use crate::metadata::complete;
use crate::vlan::{Tag, pop_tag, push_tag, vlan_of};

/// The configuration of a mux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MacMuxConfig {
    /// The ports beside the uplink.
    pub ports: Vec<MuxPort>,
    /// The type of tag.
    #[serde(default = "customer")]
    pub tpid: u16,
}

/// A port of a mux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuxPort {
    /// Name of the input and of the output.
    pub name: String,
    /// Address of the station behind it.
    pub mac: Option<MacText>,
    /// Its VLAN.
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

/// The name of the port that all share.
pub const UPLINK: &str = "uplink";

/// Why there is no mux.
#[derive(Debug, thiserror::Error)]
enum MacMuxError {
    #[error("port {0}: there are two ports of this name")]
    TwoNames(String),
    #[error("port {UPLINK}: this name is that of the uplink")]
    Uplink,
    #[error("port {name}: mac = {mac} is a group address; a station has another")]
    Group { name: String, mac: Mac },
    #[error("port {name}: mac = {mac}: port {other} has it too, in the same VLAN")]
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

/// The app.
pub struct MacMux {
    config: MacMuxConfig,
    names: [Vec<String>; 2],
    pool: Pool,
    /// What each input is.
    inputs: Vec<Side>,
    uplink: Option<usize>,
    places: Vec<Place>,
    /// The place of each address, in the order of [`key`].
    stations: Vec<(u64, usize)>,
    /// Whether a port has this VLAN.
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

/// A port as it runs.
#[derive(Clone, Copy)]
struct Place {
    /// 0 where it has none.
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

/// VLAN and address as one number.
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
    /// Brings configuration and wiring together, whichever of both has changed.
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

    /// The VLAN of a frame's tag when a port has it.
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

    /// To all ports of the VLAN that want it, and to the uplink where it came from a port.
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

/// Destination, source and type.
const MAC_HEADER: usize = 14;
