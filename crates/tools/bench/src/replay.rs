//! A source that sends given frames repeatedly, in their order.

use std::sync::Arc;

use carina_frame::Pool;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports,
};

/// Configuration of the source. Without frames it sends nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Replay {
    frames: Arc<[Vec<u8>]>,
}

impl Replay {
    /// The configuration of a source of these frames.
    pub(crate) fn of(frames: Vec<Vec<u8>>) -> Replay {
        Replay {
            frames: frames.into(),
        }
    }

    /// The frames that the source sends, in their order.
    pub(crate) fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }
}

/// The app that sends given frames repeatedly.
pub(crate) struct ReplayApp {
    frames: Arc<[Vec<u8>]>,
    next: usize,
    pool: Pool,
}

impl AppConfig for Replay {
    const KIND: &'static str = "replay";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = ReplayApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<ReplayApp, AppError> {
        Ok(ReplayApp {
            frames: Arc::clone(&self.frames),
            next: 0,
            pool: context.pool().clone(),
        })
    }
}

impl FrameApp for ReplayApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let (frames, pool, next) = (&self.frames[..], &self.pool, &mut self.next);
        ports.fill(0, FRAME_BURST, || {
            let frame = pool.frame_of(frames.get(*next)?)?;
            *next += 1;
            if *next == frames.len() {
                *next = 0;
            }
            Some(frame)
        });
    }
}
