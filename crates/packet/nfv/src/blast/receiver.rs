//! The app that receives: counts packets, detects loss and reordering, and measures latency.

use std::sync::{Arc, Mutex, PoisonError};

use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use carina_measure::sequence::SequenceTracker;
use carina_time::Instant;

use crate::blast::histogram::Histogram;
use crate::blast::packets::Stamp;

/// What the app `receiver` has received in the present trial.
#[derive(Debug, Default)]
pub struct Received {
    /// Number of packets of the trial that arrived.
    pub packets: u64,
    /// Bytes in the packets counted by `packets`.
    pub bytes: u64,
    /// Number of frames that are not packets of the trial.
    pub others: u64,
    /// The numbers of the packets, to detect loss, duplicates and reordering.
    pub numbers: SequenceTracker,
    /// Times from the creation of a packet to its arrival at this app, in ns. Packets without a
    /// stamp are not counted.
    pub latency: Histogram,
    /// When the first and the last packet of the trial arrived, on the engine's clock; `None`
    /// before the first.
    pub times: Option<(Instant, Instant)>,
}

/// The configuration of the app `receiver`, which counts the packets that come back to a load
/// generator, and measures their latency.
#[derive(Clone, Debug)]
pub(super) struct ReceiverConfig {
    /// The trial whose packets are counted.
    pub trial: u16,
    /// Whether packets carry a stamp. If not, every frame counts as a packet of the trial.
    pub is_stamped: bool,
    pub received: Arc<Mutex<Received>>,
}

impl PartialEq for ReceiverConfig {
    fn eq(&self, other: &ReceiverConfig) -> bool {
        self.can_apply(other) && self.trial == other.trial
    }
}

/// The running app `receiver`: counts the packets that come back to a load generator, and measures
/// their latency.
pub(super) struct Receiver {
    trial: u16,
    is_stamped: bool,
    received: Arc<Mutex<Received>>,
}

impl AppConfig for ReceiverConfig {
    const KIND: &'static str = "receiver";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::NO_PORT;

    type App = Receiver;

    fn build(&self, _: &mut AppContext<'_>) -> Result<Receiver, AppError> {
        Ok(Receiver {
            trial: self.trial,
            is_stamped: self.is_stamped,
            received: Arc::clone(&self.received),
        })
    }

    fn can_apply(&self, old: &ReceiverConfig) -> bool {
        self.is_stamped == old.is_stamped && Arc::ptr_eq(&self.received, &old.received)
    }

    fn apply(&self, app: &mut Receiver) {
        app.trial = self.trial;
    }
}

impl FrameApp for Receiver {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        let mut all = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.packets;
        ports.drain(0, |frame| {
            let bytes = frame.bytes();
            if self.is_stamped {
                match Stamp::of(bytes).filter(|stamp| stamp.trial == self.trial) {
                    Some(stamp) => {
                        all.numbers.note(stamp.number);
                        let latency_ns = now.as_nanos().saturating_sub(stamp.time_ns);
                        all.latency.add(latency_ns);
                    }
                    None => {
                        all.others += 1;
                        return;
                    }
                }
            }
            all.packets += 1;
            all.bytes += bytes.len() as u64;
        });
        if all.packets > before {
            let first = all.times.map_or(now, |(first, _)| first);
            all.times = Some((first, now));
        }
    }
}
