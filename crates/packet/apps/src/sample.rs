//! **sample**: passes every n-th frame.
//!
//! - inputs: `input`
//! - outputs: `output`: every n-th frame; `rest`: all others; may be unlinked
//! - configuration: `every`: n, 1 to 4294967295
//! - counters: frames for an unlinked `rest` are counted in `network/drop_unlinked`
//! - cost: one count

use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports};
use serde::{Deserialize, Serialize};

/// The configuration of the app `sample`, which passes every n-th frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleConfig {
    /// One of this many frames passes.
    pub every: u32,
}

/// The running app `sample`: passes every n-th frame.
pub struct Sample {
    every: u32,
    seen: u32,
}

/// The number of frames is 0.
#[derive(Debug, thiserror::Error)]
#[error("every = 0: must be at least 1")]
struct EveryError;

impl AppConfig for SampleConfig {
    const KIND: &'static str = "sample";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Named(&[Port::new("output"), Port::optional("rest")]);

    type App = Sample;

    fn check(&self) -> Result<(), AppError> {
        if self.every == 0 {
            return Err(EveryError.into());
        }
        Ok(())
    }

    fn build(&self, _: &mut AppContext<'_>) -> Result<Sample, AppError> {
        Ok(Sample {
            every: self.every,
            seen: 0,
        })
    }

    fn can_apply(&self, _old: &SampleConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut Sample) {
        (app.every, app.seen) = (self.every, 0);
    }
}

impl FrameApp for Sample {
    fn push(&mut self, ports: &mut Ports<'_>) {
        ports.each(0, |frame, ports| {
            self.seen += 1;
            let passes = self.seen == self.every;
            if passes {
                self.seen = 0;
            }
            ports.transmit(usize::from(!passes), frame);
        });
    }
}
