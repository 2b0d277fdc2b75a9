//! **truncate**: gives frames a fixed length: cuts longer ones, and pads shorter ones with zeros.
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: `size`: length in bytes, 1 to 65535
//! - counters: `drop_no_room`: frames whose cell has no room for this length
//! - cost: only the move over the links, or writing the zeros

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports, WhenFull};
use serde::{Deserialize, Serialize};

/// The configuration of the app `truncate`, which cuts or pads frames to a fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TruncateConfig {
    /// Length of every frame that leaves, in bytes.
    pub size: u16,
}

/// The running app `truncate`: cuts or pads frames to a fixed length.
pub struct Truncate {
    size: usize,
    no_room: Counter,
}

/// The size is 0.
#[derive(Debug, thiserror::Error)]
#[error("size = 0: must be 1 to 65535 bytes")]
struct SizeError;

impl AppConfig for TruncateConfig {
    const KIND: &'static str = "truncate";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::Waits;

    type App = Truncate;

    fn check(&self) -> Result<(), AppError> {
        if self.size == 0 {
            return Err(SizeError.into());
        }
        Ok(())
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Truncate, AppError> {
        Ok(Truncate {
            size: usize::from(self.size),
            no_room: context.counter("drop_no_room"),
        })
    }

    fn can_apply(&self, _old: &TruncateConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut Truncate) {
        app.size = usize::from(self.size);
    }
}

impl FrameApp for Truncate {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let (size, mut dropped) = (self.size, 0);
        ports.forward(0, 0, |frame| {
            let had = frame.len();
            if !frame.set_len(size) {
                dropped += 1;
                return false;
            }
            if let Some(added) = frame.bytes_mut().get_mut(had..) {
                added.fill(0);
            }
            true
        });
        self.no_room.add(dropped);
    }
}
