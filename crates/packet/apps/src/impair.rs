//! **impair**: loses, delays, reorders, duplicates and damages frames, and limits their rate, like
//! a bad line.
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration, all optional: `loss`, `duplicate`, `reorder`, `corrupt`: shares of frames, 0 to
//!   1 (default: 0), `corrupt` of frames in which one random bit is flipped; `delay_us` (default:
//!   0); `jitter_us`: largest deviation from the delay, up or down (default: 0);
//!   `bits_per_second`: rate limit (default: 0, no limit); `queue_bytes`: bytes that may wait for
//!   the rate or the delay (default: 16 MiB); `seed` of the random numbers
//! - counters: `drop_loss`: frames lost on purpose; `drop_full`: frames for which the queue had no
//!   room; `drop_no_frame`: duplicates for which the pool had no frame; `duplicated`, `reordered`,
//!   `corrupted`
//! - cost: a frame that waits is moved twice, and occupies a frame of the pool meanwhile
//!
//! At most 4096 frames wait, whatever their length. Random decisions repeat with the same seed. A
//! changed configuration applies to frames that arrive from then on; waiting frames keep their
//! times.

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use carina_netdev::{Fault, FaultCounts, FaultPlan};
use carina_random::SplitMix;
use carina_time::Instant;
use serde::{Deserialize, Serialize};

/// The configuration of the app `impair`, which loses, delays, reorders, duplicates and damages
/// frames, and limits their rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImpairConfig {
    /// Share of frames that are lost, 0 to 1.
    pub loss: f64,
    /// Share of frames that are sent twice, 0 to 1.
    pub duplicate: f64,
    /// Share of frames that are not delayed, and so overtake others, 0 to 1.
    pub reorder: f64,
    /// Share of frames in which one bit is flipped, 0 to 1.
    pub corrupt: f64,
    /// Delay of each frame, in µs.
    pub delay_us: u64,
    /// Largest deviation from the delay, up or down, in µs.
    pub jitter_us: u64,
    /// Rate limit in bits per second; 0 means no limit.
    pub bits_per_second: u64,
    /// Largest number of bytes of frames that may wait for the rate limit and the delay; further
    /// frames are dropped.
    pub queue_bytes: usize,
    /// Seed of the random decisions: the same seed gives the same decisions.
    pub seed: u64,
}

impl Default for ImpairConfig {
    /// A configuration that impairs nothing.
    fn default() -> ImpairConfig {
        let plan = FaultPlan::default();
        ImpairConfig {
            loss: plan.loss,
            duplicate: plan.duplicate,
            reorder: plan.reorder,
            corrupt: 0.0,
            delay_us: 0,
            jitter_us: 0,
            bits_per_second: plan.rate_bps,
            queue_bytes: plan.queue_bytes,
            seed: plan.seed,
        }
    }
}

/// The running app `impair`: loses, delays, reorders, duplicates and damages frames, and limits
/// their rate.
pub struct Impair {
    line: Fault<Frame>,
    damage: Damage,
    pool: Pool,
    counted: FaultCounts,
    lost: Counter,
    full: Counter,
    no_frame: Counter,
    duplicated: Counter,
    reordered: Counter,
    corrupted: Counter,
}

/// Flips one bit in a share of the frames.
struct Damage {
    share: f64,
    random: SplitMix,
}

impl Damage {
    fn new(config: &ImpairConfig) -> Damage {
        Damage {
            share: config.corrupt,
            // Loss and duplication start from the unchanged seed.
            random: SplitMix::new(config.seed ^ DAMAGE_SEED),
        }
    }

    /// Flips a bit of the frame if its turn has come; returns whether it did.
    fn apply(&mut self, frame: &mut Frame) -> bool {
        let bits = 8 * frame.len() as u64;
        if self.share == 0.0 || bits == 0 || self.random.unit() >= self.share {
            return false;
        }
        let bit = (self.random.next_u64() % bits) as usize;
        frame.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        frame.set_checksum_valid(false);
        true
    }
}

/// The share of damaged frames is out of range.
#[derive(Debug, thiserror::Error)]
#[error("corrupt is {0}; must be from 0 to 1")]
struct CorruptError(f64);

/// A delay is out of range.
#[derive(Debug, thiserror::Error)]
#[error("{name} = {us} µs: must be at most {DELAY_US_MAX} µs")]
struct DelayError {
    name: &'static str,
    us: u64,
}

impl ImpairConfig {
    /// The fault plan that this configuration describes.
    ///
    /// # Errors
    /// A value is out of range; the error names the first one.
    pub fn plan(&self) -> Result<FaultPlan, AppError> {
        for (name, us) in [("delay_us", self.delay_us), ("jitter_us", self.jitter_us)] {
            if us > DELAY_US_MAX {
                return Err(Box::new(DelayError { name, us }));
            }
        }
        if !(0.0..=1.0).contains(&self.corrupt) {
            return Err(Box::new(CorruptError(self.corrupt)));
        }
        let plan = FaultPlan {
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            delay_ns: self.delay_us * 1000,
            jitter_ns: self.jitter_us * 1000,
            rate_bps: self.bits_per_second,
            queue_bytes: self.queue_bytes,
            seed: self.seed,
        };
        plan.check()?;
        Ok(plan)
    }
}

impl AppConfig for ImpairConfig {
    const KIND: &'static str = "impair";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = Impair;

    fn check(&self) -> Result<(), AppError> {
        self.plan().map(drop)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Impair, AppError> {
        Ok(Impair {
            line: Fault::new(self.plan()?),
            damage: Damage::new(self),
            pool: context.pool().clone(),
            counted: FaultCounts::default(),
            lost: context.counter("drop_loss"),
            full: context.counter("drop_full"),
            no_frame: context.counter("drop_no_frame"),
            duplicated: context.counter("duplicated"),
            reordered: context.counter("reordered"),
            corrupted: context.counter("corrupted"),
        })
    }

    fn can_apply(&self, _old: &ImpairConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut Impair) {
        if let Ok(plan) = self.plan() {
            app.line.change(plan);
            app.damage.share = self.corrupt;
        }
    }
}

impl FrameApp for Impair {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        self.release(ports);
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        // Uses the latest possible arrival time, so that no frame is delayed by less than the
        // configured time because it came during the breath.
        let now = ports.arrived_by().as_nanos();
        let (mut overfull, mut missing, mut corrupted) = (0, 0, 0);
        let (line, damage, pool) = (&mut self.line, &mut self.damage, &self.pool);
        ports.drain(0, |mut frame| {
            if line.len() >= FRAMES_MAX {
                overfull += 1;
                return;
            }
            corrupted += u64::from(damage.apply(&mut frame));
            let bytes = frame.len();
            line.offer_with(now, frame, bytes, |frame| {
                let copy = pool.copy_of(frame);
                missing += u64::from(copy.is_none());
                copy
            });
        });
        self.no_frame.add(missing);
        self.full.add(overfull);
        self.corrupted.add(corrupted);
        self.release(ports);
        self.count();
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.line.next_due().map(Instant::from_nanos)
    }
}

impl Impair {
    /// Sends the frames that are due.
    fn release(&mut self, ports: &mut Ports<'_>) {
        if self.line.is_empty() {
            return;
        }
        let now = ports.now().as_nanos();
        let room = ports.room(0);
        ports.fill(0, room, || self.line.take_due(now));
    }

    fn count(&mut self) {
        let (now, before) = (self.line.counts(), self.counted);
        self.lost.add(now.lost - before.lost);
        self.full.add(now.overflowed - before.overflowed);
        self.duplicated.add(now.duplicated - before.duplicated);
        self.reordered.add(now.reordered - before.reordered);
        self.counted = now;
    }
}

/// Largest number of frames that may wait: a quarter of the default pool of a graph.
const FRAMES_MAX: usize = 4096;
/// Changes the configured seed, so that damage has other random numbers than loss and duplication.
const DAMAGE_SEED: u64 = 0x6461_6d61_6765;
/// The longest delay: a minute, in µs.
const DELAY_US_MAX: u64 = 60_000_000;
