//! **lwaftr**: an AFTR between two segments, or on one segment ("on a stick").
//!
//! - inputs, outputs: `external`, frames of the IPv4 Internet; `internal`, frames of the IPv6
//!   access network; or `stick`, frames of the one segment that both share. The output `mirror`
//!   gets copies of the monitored frames, both of those that arrive and of those that leave
//! - configuration: [`LwaftrConfig`]. A binding table that replaces another one is used from the
//!   next frame on, and no frame is lost
//! - counters: those of the model `snabb-softwire`; `next-hop-ipv4-resolved` and
//!   `next-hop-ipv6-resolved`, 1 while the MAC address is known; `mirror-missed`, monitored frames
//!   that could not be copied because the pool was empty; `exchange-missed`, messages to other
//!   workers that found their queue full
//! - cost: one look-up in the binding table per packet, a cache miss if the table is large

use std::any::Any;
use std::hint::black_box;
use std::sync::Arc;

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Port, PortList, Ports, made,
};
use carina_time::{Duration, Instant};

use crate::aftr::Aftr;
use crate::config::{Config, Queue, Rules};
use crate::counters::Counters;
use crate::exchange::Share;
use crate::monitor::Monitor;
use crate::table::Table;

/// The configuration of the app `lwaftr`: what one worker of an AFTR needs to forward packets.
#[derive(Clone, Debug)]
pub struct LwaftrConfig {
    /// The configuration that was read from the file.
    pub config: Arc<Config>,
    /// The binding table: which softwire each IPv4 address and port set belongs to.
    pub table: Arc<Table>,
    /// The queue of the configuration whose addresses the app has.
    pub queue: Queue,
    /// Which behaviour to follow where the RFCs and Snabb differ.
    pub rules: Rules,
    /// Whether all frames arrive and leave at `stick`.
    pub is_stick: bool,
    /// Which frames are copied to the output `mirror`.
    pub monitor: Monitor,
    /// The app's place among several workers, if there are several: see [spread](crate::spread),
    /// which distributes the frames over them.
    pub share: Option<Share>,
}

/// Two tables are equal only if they are one and the same object.
impl PartialEq for LwaftrConfig {
    fn eq(&self, other: &LwaftrConfig) -> bool {
        self.is_as(other) && self.monitor == other.monitor && Arc::ptr_eq(&self.table, &other.table)
    }
}

impl LwaftrConfig {
    /// Whether everything but the table and the monitor is equal.
    fn is_as(&self, other: &LwaftrConfig) -> bool {
        self.config == other.config
            && self.queue == other.queue
            && self.rules == other.rules
            && self.is_stick == other.is_stick
            && self.share == other.share
    }
}

/// The running app `lwaftr`: one worker of an AFTR, between its ports.
pub struct Lwaftr {
    aftr: Aftr,
    is_stick: bool,
    monitor: Monitor,
    pool: Pool,
    missed: Counter,
    share: Option<Share>,
    untold: Counter,
    published: Vec<Counter>,
    resolved: [Counter; 2],
}

const EXTERNAL: usize = 0;
const INTERNAL: usize = 1;
const STICK: usize = 2;
const MIRROR: usize = 3;
const SIDES: [Port; 3] = [
    Port::optional("external"),
    Port::optional("internal"),
    Port::optional("stick"),
];

impl AppConfig for LwaftrConfig {
    const KIND: &'static str = "lwaftr";
    const INPUTS: PortList = PortList::Named(&SIDES);
    const OUTPUTS: PortList =
        PortList::Named(&[SIDES[0], SIDES[1], SIDES[2], Port::optional("mirror")]);
    const TICK: Option<Duration> = Some(Duration::from_millis(100));
    const OPENS: bool = true;

    type App = Lwaftr;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Lwaftr, AppError> {
        let table = Arc::clone(&self.table);
        let pool = context.pool().clone();
        let names = Counters::names();
        let aftr = Aftr::new(&self.config, &self.queue, table, self.rules, pool.clone())?;
        Ok(Lwaftr {
            aftr: match &self.share {
                Some(share) => aftr.of_several(share.asks),
                None => aftr,
            },
            share: self.share.clone(),
            untold: context.counter("exchange-missed"),
            is_stick: self.is_stick,
            monitor: self.monitor,
            pool,
            missed: context.counter("mirror-missed"),
            published: names.iter().map(|name| context.counter(name)).collect(),
            resolved: ["next-hop-ipv4-resolved", "next-hop-ipv6-resolved"]
                .map(|name| context.counter(name)),
        })
    }

    fn can_apply(&self, old: &LwaftrConfig) -> bool {
        self.is_as(old)
    }

    fn apply(&self, app: &mut Lwaftr) {
        app.aftr.set_table(Arc::clone(&self.table));
        app.monitor = self.monitor;
    }
}

impl FrameApp for Lwaftr {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        if self.monitor != Monitor::None {
            for input in 0..SIDES.len() {
                let copies = self.copies(ports.frames(input));
                copies
                    .into_iter()
                    .for_each(|copy| ports.transmit(MIRROR, copy));
            }
        }
        self.hear(ports.now());
        let (now, aftr) = (ports.now(), &mut self.aftr);
        let external = ports
            .frames(EXTERNAL)
            .map(|frame| aftr.touch_external(frame.bytes()));
        let internal = ports
            .frames(INTERNAL)
            .map(|frame| aftr.touch_internal(frame.bytes()));
        black_box(external.fold(0, |sum, touched| sum ^ touched));
        black_box(internal.fold(0, |sum, touched| sum ^ touched));
        ports.drain(EXTERNAL, |frame| aftr.handle_external(frame, now));
        ports.drain(INTERNAL, |frame| aftr.handle_internal(frame, now));
        ports.drain(STICK, |frame| aftr.handle_stick(frame, now));
        self.tell();
        self.leave(ports);
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
        self.hear(ports.now());
        self.aftr.handle_time(ports.now());
        self.leave(ports);
        let values = self.aftr.counters().values();
        for (counter, value) in self.published.iter().zip(values) {
            counter.set(value);
        }
        for (counter, is_resolved) in self.resolved.iter().zip(self.aftr.are_resolved()) {
            counter.set(u64::from(is_resolved));
        }
    }
}

impl Lwaftr {
    /// Handles what the other workers have learnt.
    fn hear(&mut self, now: Instant) {
        if let Some(share) = &self.share {
            for learnt in share.exchange.take(share.worker) {
                self.aftr.handle_learnt(&learnt, now);
            }
        }
    }

    /// Passes the next hops and path MTUs that this worker has learned to the other workers.
    fn tell(&mut self) {
        if let Some(share) = &self.share {
            for learnt in self.aftr.take_learnt() {
                let untold = share.exchange.tell(share.worker, share.workers, learnt);
                self.untold.add(untold as u64);
            }
        }
    }

    /// Makes copies of the frames that are monitored.
    fn copies<'a>(&self, frames: impl Iterator<Item = &'a Frame>) -> Vec<Frame> {
        let wanted = frames.filter(|frame| self.monitor.wants(frame.bytes()));
        let copies = wanted.filter_map(|frame| {
            let copy = self.pool.copy_of(frame);
            if copy.is_none() {
                self.missed.add(1);
            }
            copy
        });
        copies.collect()
    }

    fn leave(&mut self, ports: &mut Ports<'_>) {
        let [external, internal] = if self.is_stick {
            [STICK; 2]
        } else {
            [EXTERNAL, INTERNAL]
        };
        if self.monitor != Monitor::None {
            let out = std::mem::take(self.aftr.outputs());
            let copies = self.copies(out.external.iter().chain(&out.internal));
            copies
                .into_iter()
                .for_each(|copy| ports.transmit(MIRROR, copy));
            *self.aftr.outputs() = out;
        }
        let out = self.aftr.outputs();
        for frame in out.external.drain(..) {
            ports.transmit(external, frame);
        }
        for frame in out.internal.drain(..) {
            ports.transmit(internal, frame);
        }
    }
}
