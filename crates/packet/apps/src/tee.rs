//! **tee**: copies each frame to all outputs. The last output, in the order of names, gets the
//! frame itself.
//!
//! - inputs: `input`
//! - outputs: any names
//! - configuration: none
//! - counters: `drop_no_frame`: copies for which the pool had no frame, or only frames that are too
//!   short
//! - cost: one copy of bytes and metadata for each output but one

use carina_frame::Pool;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use serde::{Deserialize, Serialize};

/// The configuration of the app `tee`, which copies each frame to all outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TeeConfig {}

/// The running app `tee`: copies each frame to all outputs.
pub struct Tee {
    pool: Pool,
    no_frame: Counter,
}

impl AppConfig for TeeConfig {
    const KIND: &'static str = "tee";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Any;

    type App = Tee;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Tee, AppError> {
        Ok(Tee {
            pool: context.pool().clone(),
            no_frame: context.counter("drop_no_frame"),
        })
    }
}

impl FrameApp for Tee {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let Some(last) = ports.outputs().checked_sub(1) else {
            return ports.drain(0, drop);
        };
        // Output by output, so that each link stays in cache for the whole burst.
        for output in 0..last {
            let missing = ports.copy_all(0, output, &self.pool);
            self.no_frame.add(missing as u64);
        }
        ports.forward(0, last, |_| true);
    }
}
