//! The app that sends packets, at a given rate or as fast as the port takes them.

use std::sync::{Arc, Mutex, PoisonError};

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports, WhenFull,
};
use carina_time::Instant;

use crate::blast::packets::{Packets, Stamp};

/// What the app `generator` has to send: the trial, its rate and its number of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The trial's number, which its packets carry; 0 sends nothing.
    pub number: u16,
    /// Packets per second; `None` sends as fast as the port takes them.
    pub rate: Option<f64>,
    /// Number of packets in all; `None` sends without end.
    pub count: Option<u64>,
    /// Whether the generator sends packets; false pauses it.
    pub is_on: bool,
}

impl Trial {
    pub(super) const NOTHING: Trial = Trial {
        number: 0,
        rate: None,
        count: None,
        is_on: false,
    };
}

/// What the app `generator` has sent in the present trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of packets that the generator has put on its output, refused ones included.
    pub packets: u64,
    /// Bytes in the packets counted by `packets`.
    pub bytes: u64,
    /// When the first and the last packet were sent, on the engine's clock; `None` before the
    /// first.
    pub times: Option<(Instant, Instant)>,
}

/// The configuration of the app `generator`, which sends the packets of a load generator.
#[derive(Clone, Debug)]
pub(super) struct GeneratorConfig {
    pub packets: Arc<Packets>,
    pub trial: Trial,
    pub sent: Arc<Mutex<Sent>>,
}

impl PartialEq for GeneratorConfig {
    fn eq(&self, other: &GeneratorConfig) -> bool {
        self.can_apply(other) && self.trial == other.trial
    }
}

/// The running app `generator`: sends the packets of a load generator.
pub(super) struct Generator {
    packets: Arc<Packets>,
    trial: Trial,
    sent: Arc<Mutex<Sent>>,
    pool: Pool,
    pool_empty: Counter,
    number: u64,
    /// The point from which packets are counted against the rate: its time, and the number of
    /// packets sent before it. The point moves to now when the generator gives up missed packets.
    since: Option<(Instant, u64)>,
}

impl AppConfig for GeneratorConfig {
    const KIND: &'static str = "generator";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;

    type App = Generator;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Generator, AppError> {
        Ok(Generator {
            packets: Arc::clone(&self.packets),
            trial: self.trial,
            sent: Arc::clone(&self.sent),
            pool: context.pool().clone(),
            pool_empty: context.counter("pool_empty"),
            number: 0,
            since: None,
        })
    }

    fn can_apply(&self, old: &GeneratorConfig) -> bool {
        Arc::ptr_eq(&self.packets, &old.packets) && Arc::ptr_eq(&self.sent, &old.sent)
    }

    fn apply(&self, app: &mut Generator) {
        if app.trial.number != self.trial.number {
            app.number = 0;
            app.since = None;
        }
        app.trial = self.trial;
    }
}

impl FrameApp for Generator {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        let wanted = self.wanted(now);
        if wanted == 0 {
            return;
        }
        let (mut bytes, mut is_empty) = (0, false);
        let sent = ports.fill(0, wanted, || {
            let frame = self.frame(now);
            is_empty |= frame.is_none();
            bytes += frame.as_ref().map_or(0, Frame::len);
            frame
        });
        self.pool_empty.add(u64::from(is_empty));
        if sent > 0 {
            let mut all = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            all.packets += sent as u64;
            all.bytes += bytes as u64;
            let first = all.times.map_or(now, |(first, _)| first);
            all.times = Some((first, now));
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let (since, base) = self.since.filter(|_| self.left() > 0)?;
        let rate = self.trial.rate?;
        let next = (self.number - base + 1) as f64 / rate * 1e9;
        Some(Instant::from_nanos(since.as_nanos() + next as u64))
    }

    fn arm(&mut self) -> bool {
        self.left() == 0 || self.trial.rate.is_some()
    }
}

impl Generator {
    fn left(&self) -> u64 {
        match self.trial.count {
            _ if !self.trial.is_on => 0,
            Some(count) => count.saturating_sub(self.number),
            None => u64::MAX,
        }
    }

    /// Returns the number of packets to send now, so that the rate is kept.
    fn wanted(&mut self, now: Instant) -> usize {
        let left = self.left();
        let due = match self.trial.rate {
            _ if left == 0 => 0,
            None => u64::MAX,
            Some(rate) => {
                let (since, base) = *self.since.get_or_insert((now, self.number));
                let passed = now.since(since).as_nanos() as f64 / 1e9;
                let due = (passed * rate) as u64;
                let behind = due.saturating_sub(self.number - base);
                // After a pause longer than `DEBT_S`, the generator gives up the missed packets.
                // Sending them at once would be a burst far above the rate.
                if behind > (rate * DEBT_S) as u64 + FRAME_BURST as u64 {
                    self.since = Some((now, self.number));
                }
                behind
            }
        };
        due.min(left).min(FRAME_BURST as u64) as usize
    }

    #[inline]
    fn frame(&mut self, now: Instant) -> Option<Frame> {
        let mut frame = self.pool.frame_of(self.packets.bytes(self.number))?;
        let stamp = Stamp {
            trial: self.trial.number,
            number: self.number,
            time_ns: now.as_nanos(),
        };
        self.packets.stamp(frame.bytes_mut(), stamp);
        self.number += 1;
        Some(frame)
    }
}

/// How far the sender may be behind its rate and still catch up, in seconds.
const DEBT_S: f64 = 0.01;
