//! **only**: lets frames of one Ethertype pass.
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: `ethertype`
//! - counters: `drop_other_type`
//! - cost: one comparison of 2 bytes

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};

#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub(crate) struct OnlyConfig {
    pub ethertype: u16,
}

pub(crate) struct Only {
    wanted: [u8; 2],
    other_type: Counter,
}

impl AppConfig for OnlyConfig {
    const KIND: &'static str = "only";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    type App = Only;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Only, AppError> {
        Ok(Only {
            wanted: self.ethertype.to_be_bytes(),
            other_type: context.counter("drop_other_type"),
        })
    }
}

impl FrameApp for Only {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let (wanted, mut dropped) = (self.wanted, 0);
        ports.forward(0, 0, |frame| {
            let passes = frame.bytes().get(12..14) == Some(&wanted);
            dropped += u64::from(!passes);
            passes
        });
        self.other_type.add(dropped);
    }
}
