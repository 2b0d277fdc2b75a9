//! **truncate**: cuts frames to a length; shorter ones are filled up with zeros.
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: `size`: bytes, 1 to 65535
//! - counters: `drop_no_room`: the frame's cell has no room for so many bytes
//! - cost: nothing beside the move, or the writing of the zeros

use carina_engine::counter_file::Counter;
use carina_engine::frames::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports, WhenFull};
use serde::{Deserialize, Serialize};

/// The configuration of a truncate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TruncateConfig {
    /// The length of every frame that leaves, in bytes.
    pub size: u16,
}

/// The app.
pub struct Truncate {
    size: usize,
    no_room: Counter,
}

/// Why there is no truncate.
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
