//! **lwaftr**: an AFTR between two segments, or on one.
//!
//! - inputs, outputs: `external`, frames of the IPv4 Internet; `internal`, those of the IPv6 access
//!   network; or `stick`, the one segment of both
//! - configuration: what a file says, the binding table, the queue, the rules. A table that
//!   replaces another is used from the next frame on, and no frame is lost
//! - counters: those of the model `snabb-softwire`, and `next-hop-ipv4-resolved` and
//!   `next-hop-ipv6-resolved`, 1 when the MAC address is known
//! - cost: a look-up in the table, which is a cache miss with a large one

use std::hint::black_box;
use std::sync::Arc;

use carina_engine::counter_file::Counter;
use carina_engine::frames::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports};
use carina_time::Duration;

use crate::aftr::Aftr;
use crate::config::{Config, Queue, Rules};
use crate::counters::Counters;
use crate::table::Table;

/// The configuration of the app.
#[derive(Clone, Debug)]
pub struct LwaftrConfig {
    /// What the file says.
    pub config: Arc<Config>,
    /// The binding table.
    pub table: Arc<Table>,
    /// The queue of the file whose addresses the app has.
    pub queue: Queue,
    /// Where RFC and Snabb differ.
    pub rules: Rules,
    /// All frames leave at `stick`.
    pub is_stick: bool,
}

/// Tables are the same when they are one.
impl PartialEq for LwaftrConfig {
    fn eq(&self, other: &LwaftrConfig) -> bool {
        self.differs_by_table(other) && Arc::ptr_eq(&self.table, &other.table)
    }
}

impl LwaftrConfig {
    /// Whether all but the table is the same.
    fn differs_by_table(&self, other: &LwaftrConfig) -> bool {
        self.config == other.config
            && self.queue == other.queue
            && self.rules == other.rules
            && self.is_stick == other.is_stick
    }
}

/// The app.
pub struct Lwaftr {
    aftr: Aftr,
    is_stick: bool,
    published: Vec<Counter>,
    resolved: [Counter; 2],
}

const EXTERNAL: usize = 0;
const INTERNAL: usize = 1;
const STICK: usize = 2;
const PORTS: PortList = PortList::Named(&[
    Port::optional("external"),
    Port::optional("internal"),
    Port::optional("stick"),
]);

impl AppConfig for LwaftrConfig {
    const KIND: &'static str = "lwaftr";
    const INPUTS: PortList = PORTS;
    const OUTPUTS: PortList = PORTS;
    const TICK: Option<Duration> = Some(Duration::from_millis(100));

    type App = Lwaftr;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Lwaftr, AppError> {
        let table = Arc::clone(&self.table);
        let pool = context.pool().clone();
        let names = Counters::names();
        Ok(Lwaftr {
            aftr: Aftr::new(&self.config, &self.queue, table, self.rules, pool)?,
            is_stick: self.is_stick,
            published: names.iter().map(|name| context.counter(name)).collect(),
            resolved: ["next-hop-ipv4-resolved", "next-hop-ipv6-resolved"]
                .map(|name| context.counter(name)),
        })
    }

    fn can_apply(&self, old: &LwaftrConfig) -> bool {
        self.differs_by_table(old)
    }

    fn apply(&self, app: &mut Lwaftr) {
        app.aftr.set_table(Arc::clone(&self.table));
    }
}

impl FrameApp for Lwaftr {
    fn push(&mut self, ports: &mut Ports<'_>) {
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
        self.leave(ports);
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
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
    fn leave(&mut self, ports: &mut Ports<'_>) {
        let [external, internal] = match self.is_stick {
            true => [STICK; 2],
            false => [EXTERNAL, INTERNAL],
        };
        let out = self.aftr.outputs();
        for frame in out.external.drain(..) {
            ports.transmit(external, frame);
        }
        for frame in out.internal.drain(..) {
            ports.transmit(internal, frame);
        }
    }
}
