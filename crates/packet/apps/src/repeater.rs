//! **repeater**: stores the frames that arrive, and sends copies of them over and over.
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: `frames`: number of frames to store, 1 to 65536 (default: 1024). Further frames
//!   are dropped
//! - counters: `drop_kept_enough`: frames beyond `frames`; `pool_empty`: bursts that ended early
//!   because the pool had no frame
//! - cost: one copy of the bytes

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports,
};
use serde::{Deserialize, Serialize};

/// The configuration of the app `repeater`, which stores frames, and sends copies of them over and
/// over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RepeaterConfig {
    /// Number of frames to store.
    pub frames: usize,
}

impl Default for RepeaterConfig {
    fn default() -> RepeaterConfig {
        RepeaterConfig { frames: 1024 }
    }
}

/// The running app `repeater`: stores frames, and sends copies of them over and over.
pub struct Repeater {
    frames_max: usize,
    kept: Vec<Frame>,
    next: usize,
    pool: Pool,
    kept_enough: Counter,
    pool_empty: Counter,
}

/// The number of frames is out of range.
#[derive(Debug, thiserror::Error)]
#[error("frames = {0}: must be 1 to {FRAMES_MAX}")]
struct FramesError(usize);

const FRAMES_MAX: usize = 65_536;

impl AppConfig for RepeaterConfig {
    const KIND: &'static str = "repeater";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = Repeater;

    fn check(&self) -> Result<(), AppError> {
        if !(1..=FRAMES_MAX).contains(&self.frames) {
            return Err(FramesError(self.frames).into());
        }
        Ok(())
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Repeater, AppError> {
        Ok(Repeater {
            frames_max: self.frames,
            kept: Vec::new(),
            next: 0,
            pool: context.pool().clone(),
            kept_enough: context.counter("drop_kept_enough"),
            pool_empty: context.counter("pool_empty"),
        })
    }
}

impl FrameApp for Repeater {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        if self.kept.is_empty() {
            return;
        }
        let (kept, next, pool) = (&self.kept, &mut self.next, &self.pool);
        let burst = FRAME_BURST.min(ports.room(0));
        let sent = ports.fill(0, burst, || {
            let copy = pool.copy_of(&kept[*next])?;
            *next = (*next + 1) % kept.len();
            Some(copy)
        });
        self.pool_empty.add(u64::from(sent < burst));
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let (kept, frames_max) = (&mut self.kept, self.frames_max);
        let mut dropped = 0;
        ports.drain(0, |frame| {
            if kept.len() < frames_max {
                kept.push(frame)
            } else {
                dropped += 1
            }
        });
        self.kept_enough.add(dropped);
    }

    fn arm(&mut self) -> bool {
        self.kept.is_empty()
    }
}
