//! **split**: distributes frames over its outputs.
//!
//! - inputs: `input`
//! - outputs: any names
//! - configuration: `by`: `"frame"`: the outputs get frames in turn; `"flow"`: all frames of a flow
//!   go to one output, so that they stay in order (default: `"frame"`). The frames of a flow have
//!   equal IP addresses, protocol and ports; frames other than IPv4 and IPv6, equal MAC addresses
//!   and Ethertype
//! - counters: `drop_no_output`: frames that arrived while no output was linked
//! - cost: by flow, one hash over 16 to 44 bytes, which is stored with the frame

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use serde::{Deserialize, Serialize};

use crate::flow_hash::{choice, flow_hash};

/// The configuration of the app `split`, which distributes frames over its outputs, in turn or by
/// flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SplitConfig {
    /// Whether the outputs get frames in turn, or by flow.
    pub by: SplitBy,
}

/// How the app `split` chooses the output of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    /// The outputs get frames in turn, whatever the frames contain.
    #[default]
    Frame,
    /// All frames of a flow go to the same output.
    Flow,
}

/// The running app `split`: distributes frames over its outputs, in turn or by flow.
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
