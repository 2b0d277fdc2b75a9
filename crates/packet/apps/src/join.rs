//! **join**: passes the frames of all inputs to one output.
//!
//! - inputs: any names; the input served first changes with each visit, so that all inputs lose
//!   frames alike if the output is full
//! - outputs: `output`
//! - configuration: none
//! - counters: those of its links
//! - cost: only the move over the links

use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use serde::{Deserialize, Serialize};

/// The configuration of the app `join`, which passes the frames of all inputs to one output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinConfig {}

/// The running app `join`: passes the frames of all inputs to one output.
#[derive(Default)]
pub struct Join {
    visits: usize,
}

impl AppConfig for JoinConfig {
    const KIND: &'static str = "join";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = Join;

    fn build(&self, _: &mut AppContext<'_>) -> Result<Join, AppError> {
        Ok(Join::default())
    }
}

impl FrameApp for Join {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let inputs = ports.inputs();
        let first = self.visits % inputs.max(1);
        self.visits = self.visits.wrapping_add(1);
        for input in (first..inputs).chain(0..first) {
            ports.forward(input, 0, |_| true);
        }
    }
}
