//! **vlan_untag**: removes the tag of one VLAN from each frame, and drops all other frames. (IEEE
//! 802.1Q §9.6)
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: `vlan`: 0 to 4094; `tpid`: type of the tag, 0x8100 or 0x88a8 (default: 0x8100)
//! - counters: `drop_untagged`: frames without a tag of this type; `drop_other_vlan`
//! - cost: a move of 12 bytes

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports, WhenFull};
use carina_wire::ether::TPID_CUSTOMER;
use serde::{Deserialize, Serialize};

use crate::vlan::{Tag, pop_tag, vlan_of};

/// The configuration of the app `vlan_untag`, which removes the tag of one VLAN from each frame,
/// and drops all other frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VlanUntagConfig {
    /// VLAN of the tag to remove.
    pub vlan: u16,
    /// Type (TPID) of the tag to remove, 0x8100 or 0x88a8.
    #[serde(default = "customer")]
    pub tpid: u16,
}

fn customer() -> u16 {
    TPID_CUSTOMER
}

/// The running app `vlan_untag`: removes the tag of one VLAN from each frame, and drops all other
/// frames.
pub struct VlanUntag {
    config: VlanUntagConfig,
    untagged: Counter,
    other_vlan: Counter,
}

impl AppConfig for VlanUntagConfig {
    const KIND: &'static str = "vlan_untag";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::Waits;

    type App = VlanUntag;

    fn check(&self) -> Result<(), AppError> {
        Ok(Tag::new(self.tpid, self.vlan, 0).map(drop)?)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<VlanUntag, AppError> {
        Ok(VlanUntag {
            config: *self,
            untagged: context.counter("drop_untagged"),
            other_vlan: context.counter("drop_other_vlan"),
        })
    }

    fn can_apply(&self, _old: &VlanUntagConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut VlanUntag) {
        app.config = *self;
    }
}

impl FrameApp for VlanUntag {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let (config, mut untagged, mut other) = (self.config, 0, 0);
        ports.forward(0, 0, |frame| match vlan_of(frame.bytes(), config.tpid) {
            Some(vlan) if vlan == config.vlan => {
                pop_tag(frame);
                true
            }
            Some(_) => {
                other += 1;
                false
            }
            None => {
                untagged += 1;
                false
            }
        });
        self.untagged.add(untagged);
        self.other_vlan.add(other);
    }
}
