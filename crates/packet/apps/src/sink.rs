//! **sink**: drops every frame.
//!
//! - inputs: any names
//! - outputs: none
//! - configuration: none
//! - counters: those of its links
//! - cost: the frame's return to its pool

use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use serde::{Deserialize, Serialize};

/// The configuration of the app `sink`, which drops every frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkConfig {}

/// The running app `sink`: drops every frame.
pub struct Sink;

impl AppConfig for SinkConfig {
    const KIND: &'static str = "sink";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::NO_PORT;

    type App = Sink;

    fn build(&self, _: &mut AppContext<'_>) -> Result<Sink, AppError> {
        Ok(Sink)
    }
}

impl FrameApp for Sink {
    fn push(&mut self, ports: &mut Ports<'_>) {
        for input in 0..ports.inputs() {
            ports.drain(input, drop);
        }
    }
}
