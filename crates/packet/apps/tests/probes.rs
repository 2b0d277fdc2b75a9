//! Probes for the ports of an app: feeders send frames into it, collectors keep what comes out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use carina_frame::Pool;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};

/// Frames that wait at a feeder, or that a collector has received.
pub(crate) type Waiting = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// Sends frames into a link.
#[derive(Clone, Debug)]
pub(crate) struct Feeder(pub Waiting);

/// Keeps the frames that arrive.
#[derive(Clone, Debug)]
pub(crate) struct Collector(pub Waiting);

impl PartialEq for Feeder {
    fn eq(&self, other: &Feeder) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for Collector {
    fn eq(&self, other: &Collector) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

pub(crate) struct FeederApp(Waiting, Pool);
pub(crate) struct CollectorApp(Waiting);

impl AppConfig for Feeder {
    const KIND: &'static str = "feeder";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::OUTPUT;
    type App = FeederApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<FeederApp, AppError> {
        Ok(FeederApp(Arc::clone(&self.0), context.pool().clone()))
    }
}

impl AppConfig for Collector {
    const KIND: &'static str = "collector";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Any;
    type App = CollectorApp;

    fn build(&self, _: &mut AppContext<'_>) -> Result<CollectorApp, AppError> {
        Ok(CollectorApp(Arc::clone(&self.0)))
    }
}

impl FrameApp for FeederApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let waiting = &mut *self.0.lock().unwrap();
        ports.fill(0, usize::MAX, || self.1.frame_of(&waiting.pop_front()?));
    }

    // Frames that the replaced interface would have sent are dropped.
    fn push(&mut self, ports: &mut Ports<'_>) {
        (0..ports.inputs()).for_each(|input| ports.drain(input, drop));
    }
}

impl FrameApp for CollectorApp {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let seen = &mut *self.0.lock().unwrap();
        ports.drain(0, |frame| seen.push_back(frame.bytes().to_vec()));
    }
}
