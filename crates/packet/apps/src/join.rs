//! **join**: brings the frames of all inputs together.
//!
//! - inputs: any; in each visit another one is first, so that where the output is full no input is
//!   always the one that loses
//! - outputs: `output`
//! - configuration: nothing
//! - counters: those of its links
//! - cost: nothing beside the move

use carina_engine::frames::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use serde::{Deserialize, Serialize};

/// The configuration of a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinConfig {}

/// The app.
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
