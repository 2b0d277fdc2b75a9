//! **split**: spreads frames over its outputs.
//!
//! - inputs: `input`
//! - outputs: any
//! - configuration: `by`: `"frame"` gives each output a frame in turn; `"flow"` gives all frames of
//!   a flow to one output, so that they stay in order. A flow is what has the same addresses,
//!   protocol and ports of IPv4 or IPv6; of other frames, the same MAC addresses and type.
//!   `"frame"` where nothing is said
//! - counters: `drop_no_output`: there is no output
//! - cost: by flow, one hash over 16 to 44 bytes, which the frame keeps

use carina_engine::counter_file::Counter;
use carina_engine::frames::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use serde::{Deserialize, Serialize};

use crate::flow_hash::{choice, flow_hash};

/// The configuration of a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SplitConfig {
    /// What stays together.
    pub by: SplitBy,
}

/// What stays together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    /// Nothing: the outputs take turns.
    #[default]
    Frame,
    /// The frames of a flow.
    Flow,
}

/// The app.
pub struct Split {
    by: SplitBy,
    turn: usize,
    no_output: Counter,
}

impl AppConfig for SplitConfig {
    const KIND: &'static str = "split";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Any;

    type App = Split;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Split, AppError> {
        Ok(Split {
            by: self.by,
            turn: 0,
            no_output: context.counter("drop_no_output"),
        })
    }

    fn can_apply(&self, _old: &SplitConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut Split) {
        app.by = self.by;
    }
}

impl FrameApp for Split {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let outputs = ports.outputs();
        if outputs == 0 {
            self.no_output.add(ports.waiting(0) as u64);
            return ports.drain(0, drop);
        }
        ports.each(0, |mut frame, ports| {
            let output = match self.by {
                SplitBy::Frame => {
                    self.turn = (self.turn + 1) % outputs;
                    self.turn
                }
                SplitBy::Flow => {
                    let known = frame.hash();
                    let hash = known.unwrap_or_else(|| flow_hash(frame.bytes()));
                    frame.set_hash(Some(hash));
                    choice(hash, outputs)
                }
            };
            ports.transmit(output, frame);
        });
    }
}
