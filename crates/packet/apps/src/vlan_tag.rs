//! **vlan_tag**: adds a VLAN tag to each frame. (IEEE 802.1Q §9.6)
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: `vlan`: 0 to 4094, where 0 marks a priority only; `priority`: 0 to 7 (default:
//!   0); `tpid`: type of the tag, 0x8100 or 0x88a8, a provider's tag (default: 0x8100)
//! - counters: `drop_short`: frames without MAC addresses; `drop_no_room`: frames without headroom
//!   for the tag
//! - cost: a move of 12 bytes

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports, WhenFull};
use carina_wire::ether::TPID_CUSTOMER;
use serde::{Deserialize, Serialize};

use crate::vlan::{Tag, TagError, push_tag};

/// The configuration of the app `vlan_tag`, which adds a VLAN tag to each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VlanTagConfig {
    /// VLAN of the tag; 0 marks a priority only.
    pub vlan: u16,
    /// Priority in the tag, 0 to 7.
    #[serde(default)]
    pub priority: u8,
    /// Type (TPID) of the tag, 0x8100 or 0x88a8.
    #[serde(default = "customer")]
    pub tpid: u16,
}

fn customer() -> u16 {
    TPID_CUSTOMER
}

/// The running app `vlan_tag`: adds a VLAN tag to each frame.
pub struct VlanTag {
    tag: Tag,
    short: Counter,
    no_room: Counter,
}

impl VlanTagConfig {
    fn tag(&self) -> Result<Tag, TagError> {
        Tag::new(self.tpid, self.vlan, self.priority)
    }
}

impl AppConfig for VlanTagConfig {
    const KIND: &'static str = "vlan_tag";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::Waits;

    type App = VlanTag;

    fn check(&self) -> Result<(), AppError> {
        Ok(self.tag().map(drop)?)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<VlanTag, AppError> {
        Ok(VlanTag {
            tag: self.tag()?,
            short: context.counter("drop_short"),
            no_room: context.counter("drop_no_room"),
        })
    }

    fn can_apply(&self, _old: &VlanTagConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut VlanTag) {
        if let Ok(tag) = self.tag() {
            app.tag = tag;
        }
    }
}

impl FrameApp for VlanTag {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let (tag, mut short, mut no_room) = (self.tag, 0, 0);
        ports.forward(0, 0, |frame| {
            if frame.len() < 14 {
                short += 1;
                return false;
            }
            let is_done = push_tag(frame, tag);
            no_room += u64::from(!is_done);
            is_done
        });
        self.short.add(short);
        self.no_room.add(no_room);
    }
}
