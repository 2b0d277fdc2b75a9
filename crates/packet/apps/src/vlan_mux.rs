//! **vlan_mux**: joins ports of single VLANs to a trunk. (IEEE 802.1Q §9.6)
//!
//! Frames from the trunk go, without their tag, to the port of their VLAN. Untagged frames, and
//! frames with VLAN 0 (a priority only), go to `native`. Frames from `vlanN` go to the trunk with a
//! tag, frames from `native` unchanged.
//!
//! - inputs, outputs: `trunk`, `native` and `vlanN`, with N from 1 to 4094; each may be unlinked
//! - configuration: `tpid`: type of the tags, 0x8100 or 0x88a8 (default: 0x8100)
//! - counters: `drop_unknown_vlan`: frames of a VLAN without port; `drop_short`: frames without MAC
//!   addresses; `drop_no_room`: frames without headroom for the tag; `drop_port_name`: frames of a
//!   port with any other name
//! - cost: a move of 12 bytes, and one look-up by VLAN

use carina_frame::Frame;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, PortNames, Ports};
use carina_wire::ether::{TPID_CUSTOMER, VLAN_MAX};
use serde::{Deserialize, Serialize};

use crate::vlan::{Tag, pop_tag, push_tag, vlan_of};

/// The configuration of the app `vlan_mux`, which joins ports of single VLANs to a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VlanMuxConfig {
    /// Type (TPID) of the VLAN tags at the trunk, 0x8100 or 0x88a8.
    pub tpid: u16,
}

impl Default for VlanMuxConfig {
    fn default() -> VlanMuxConfig {
        VlanMuxConfig {
            tpid: TPID_CUSTOMER,
        }
    }
}

/// The running app `vlan_mux`: joins ports of single VLANs to a trunk.
pub struct VlanMux {
    tpid: u16,
    /// The kind of each input.
    inputs: Vec<PortKind>,
    trunk: Option<usize>,
    /// The output of each VLAN; index 0 is `native`.
    output_of: Vec<Option<usize>>,
    unknown_vlan: Counter,
    short: Counter,
    no_room: Counter,
    port_name: Counter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PortKind {
    Trunk,
    Native,
    Vlan(u16),
    Unknown,
}

impl PortKind {
    fn named(name: &str) -> PortKind {
        let number = |text: &str| {
            text.parse()
                .ok()
                .filter(|vlan| (1..=VLAN_MAX).contains(vlan))
        };
        match name {
            "trunk" => PortKind::Trunk,
            "native" => PortKind::Native,
            _ => name
                .strip_prefix("vlan")
                .and_then(number)
                .map_or(PortKind::Unknown, PortKind::Vlan),
        }
    }
}

impl AppConfig for VlanMuxConfig {
    const KIND: &'static str = "vlan_mux";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::Any;

    type App = VlanMux;

    fn check(&self) -> Result<(), AppError> {
        Ok(Tag::new(self.tpid, 1, 0).map(drop)?)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<VlanMux, AppError> {
        Ok(VlanMux {
            tpid: self.tpid,
            inputs: Vec::new(),
            trunk: None,
            output_of: vec![None; usize::from(VLAN_MAX) + 1],
            unknown_vlan: context.counter("drop_unknown_vlan"),
            short: context.counter("drop_short"),
            no_room: context.counter("drop_no_room"),
            port_name: context.counter("drop_port_name"),
        })
    }
}

impl FrameApp for VlanMux {
    fn rewired(&mut self, ports: &PortNames<'_>) {
        self.inputs = ports
            .inputs
            .iter()
            .map(|name| PortKind::named(name))
            .collect();
        self.trunk = None;
        self.output_of.fill(None);
        for (output, name) in ports.outputs.iter().enumerate() {
            match PortKind::named(name) {
                PortKind::Trunk => self.trunk = Some(output),
                PortKind::Native => self.output_of[0] = Some(output),
                PortKind::Vlan(vlan) => self.output_of[usize::from(vlan)] = Some(output),
                PortKind::Unknown => {}
            }
        }
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        for input in 0..ports.inputs() {
            match self.inputs[input] {
                PortKind::Trunk => ports.each(input, |frame, ports| self.leave_trunk(frame, ports)),
                PortKind::Native => {
                    ports.each(input, |frame, ports| self.enter_trunk(frame, ports))
                }
                PortKind::Vlan(vlan) => self.tag_all(vlan, input, ports),
                PortKind::Unknown => {
                    self.port_name.add(ports.waiting(input) as u64);
                    ports.drain(input, drop);
                }
            }
        }
    }
}

impl VlanMux {
    fn leave_trunk(&mut self, mut frame: Frame, ports: &mut Ports<'_>) {
        let vlan = vlan_of(frame.bytes(), self.tpid);
        let port = self.output_of.get(usize::from(vlan.unwrap_or(0)));
        let Some(output) = port.copied().flatten() else {
            return self.unknown_vlan.add(1);
        };
        if vlan.is_some_and(|vlan| vlan != 0) {
            pop_tag(&mut frame);
        }
        ports.transmit(output, frame);
    }

    fn enter_trunk(&mut self, frame: Frame, ports: &mut Ports<'_>) {
        match self.trunk {
            Some(trunk) => ports.transmit(trunk, frame),
            None => self.unknown_vlan.add(1),
        }
    }

    fn tag_all(&mut self, vlan: u16, input: usize, ports: &mut Ports<'_>) {
        let Ok(tag) = Tag::new(self.tpid, vlan, 0) else {
            unreachable!("type and VLAN were checked");
        };
        ports.each(input, |mut frame, ports| {
            if frame.len() < 14 {
                self.short.add(1);
            } else if push_tag(&mut frame, tag) {
                self.enter_trunk(frame, ports);
            } else {
                self.no_room.add(1);
            }
        });
    }
}
