//! **pcap_filter**: passes the frames that a filter in libpcap's language accepts, in one direction
//! or both, and optionally the answers to them.
//!
//! - inputs: `input`; `back_input`, which may be unlinked
//! - outputs: `output`; `back_output`, which may be unlinked
//! - configuration:
//!   - `filter`: filter for frames from `input` to `output`, in the syntax of pcap-filter(7) as far
//!     as `carina_filter` implements it (default: pass all)
//!   - `back_filter`: the same for frames from `back_input` to `back_output`
//!   - `state = { connections = 1000, idle_s = 7200 }`: once a frame of a TCP or UDP connection has
//!     passed a filter, all frames of the connection pass in both directions, until `idle_s`
//!     seconds without a frame. `back_filter = "less 0"`, which matches no frame, then lets only
//!     answers in. `connections`: most connections to store, 4 to 1048576; `idle_s`: 1 to 1000000
//! - counters: `drop_filter`, `drop_back_filter`; with `state` also `passed_by_state`: frames that
//!   passed because of their connection; `connections_entered`; `connections_evicted`: connections
//!   that were replaced by others
//! - cost: the instructions of the filter, 1 to 2 ns each; with `state`, first a look-up in a table
//!   of sets of 4
//!
//! A filter reads the bytes of the frame, so it ignores a VLAN tag in the metadata. Only untagged
//! IPv4 and IPv6 have connections. Fragments other than the first have no ports, so only the filter
//! decides about them.

mod connections;

use carina_filter::{Filter, FilterError};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Port, PortList, Ports, WhenFull, made,
};
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::sync::{Arc, OnceLock};

use self::connections::{Connections, Entered};
pub use self::connections::{Key, key_of};

/// The configuration of the app `pcap_filter`, which passes the frames that a filter in libpcap's
/// language accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PcapFilterConfig {
    /// Filter for frames from `input` to `output`; `None` passes all.
    pub filter: Option<String>,
    /// Filter for frames from `back_input` to `back_output`; `None` passes all.
    pub back_filter: Option<String>,
    /// If set, the app tracks connections, and passes all frames of a connection once one has
    /// passed.
    pub state: Option<StateConfig>,
    /// The compiled filters, which all clones of this value share.
    #[serde(skip)]
    pub compiled: Compiled,
}

/// The compiled filters of a configuration. They are compiled on first use, on the thread that
/// compares configurations or opens apps, so that no worker has to.
#[derive(Clone, Debug, Default)]
pub struct Compiled(Arc<OnceLock<[Option<Filter>; 2]>>);

/// Always equal: configurations are compared by the texts of their filters.
impl PartialEq for Compiled {
    fn eq(&self, _: &Compiled) -> bool {
        true
    }
}

impl Eq for Compiled {}

/// The configuration of the table of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// Largest number of connections that are stored.
    pub connections: usize,
    /// Seconds without a frame after which a connection is forgotten.
    pub idle_s: u64,
}

impl Default for StateConfig {
    fn default() -> StateConfig {
        StateConfig {
            connections: 1000,
            idle_s: 7200,
        }
    }
}

/// Why a configuration of the app `pcap_filter` is invalid.
#[derive(Debug, thiserror::Error)]
enum PcapFilterError {
    #[error("{name}: {error}")]
    Filter {
        name: &'static str,
        error: FilterError,
    },
    #[error("state.connections = {0}: must be 4 to 1048576")]
    Connections(usize),
    #[error("state.idle_s = {0}: must be 1 to 1000000")]
    Idle(u64),
}

/// The running app `pcap_filter`: passes the frames that a filter in libpcap's language accepts.
pub struct PcapFilter {
    /// The filter of each direction.
    filters: [Option<Filter>; 2],
    state: Option<State>,
    dropped: [Counter; 2],
}

struct State {
    connections: Connections,
    passed: Counter,
    entered: Counter,
    evicted: Counter,
}

impl PcapFilterConfig {
    fn filters(&self) -> Result<[Option<Filter>; 2], PcapFilterError> {
        if let Some(filters) = self.compiled.0.get() {
            return Ok(filters.clone());
        }
        let compile = |name, text: &Option<String>| {
            let filter = text.as_deref().map(Filter::compile).transpose();
            filter.map_err(|error| PcapFilterError::Filter { name, error })
        };
        let filters = [
            compile("filter", &self.filter)?,
            compile("back_filter", &self.back_filter)?,
        ];
        Ok(self.compiled.0.get_or_init(|| filters).clone())
    }
}

impl AppConfig for PcapFilterConfig {
    const KIND: &'static str = "pcap_filter";
    const INPUTS: PortList = PortList::Named(&[Port::new("input"), Port::optional("back_input")]);
    const OUTPUTS: PortList =
        PortList::Named(&[Port::new("output"), Port::optional("back_output")]);
    const WHEN_FULL: WhenFull = WhenFull::Waits;
    const OPENS: bool = true;

    type App = PcapFilter;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn check(&self) -> Result<(), AppError> {
        self.filters()?;
        if let Some(StateConfig {
            connections,
            idle_s,
        }) = self.state
        {
            if !(4..=1 << 20).contains(&connections) {
                return Err(PcapFilterError::Connections(connections).into());
            }
            if !(1..=1_000_000).contains(&idle_s) {
                return Err(PcapFilterError::Idle(idle_s).into());
            }
        }
        Ok(())
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<PcapFilter, AppError> {
        let state = self.state.map(|config| State {
            connections: Connections::new(config.connections, Duration::from_secs(config.idle_s)),
            passed: context.counter("passed_by_state"),
            entered: context.counter("connections_entered"),
            evicted: context.counter("connections_evicted"),
        });
        Ok(PcapFilter {
            filters: self.filters()?,
            state,
            dropped: [
                context.counter("drop_filter"),
                context.counter("drop_back_filter"),
            ],
        })
    }

    /// Filters can change without a new app; the connections stay.
    fn can_apply(&self, old: &PcapFilterConfig) -> bool {
        self.state == old.state
    }

    fn apply(&self, app: &mut PcapFilter) {
        if let Ok(filters) = self.filters() {
            app.filters = filters;
        }
    }
}

impl FrameApp for PcapFilter {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        for (direction, filter) in self.filters.iter().enumerate() {
            let mut dropped = 0;
            let accepts = |frame: &[u8]| filter.as_ref().is_none_or(|filter| filter.matches(frame));
            match &mut self.state {
                None => ports.forward(direction, direction, |frame| {
                    let passes = accepts(frame.bytes());
                    dropped += u64::from(!passes);
                    passes
                }),
                Some(state) => {
                    let mut counts = Counts::default();
                    ports.forward(direction, direction, |frame| {
                        let bytes = frame.bytes();
                        counts.passes(&mut state.connections, bytes, now, || accepts(bytes))
                    });
                    state.passed.add(counts.passed);
                    state.entered.add(counts.entered);
                    state.evicted.add(counts.evicted);
                    dropped = counts.dropped;
                }
            }
            self.dropped[direction].add(dropped);
        }
    }
}

/// Counts during one visit.
#[derive(Default)]
struct Counts {
    passed: u64,
    entered: u64,
    evicted: u64,
    dropped: u64,
}

impl Counts {
    fn passes(
        &mut self,
        connections: &mut Connections,
        frame: &[u8],
        now: Instant,
        accepts: impl FnOnce() -> bool,
    ) -> bool {
        let key = key_of(frame);
        if let Some(key) = &key
            && connections.refresh(key, now)
        {
            self.passed += 1;
            return true;
        }
        let is_accepted = accepts();
        if !is_accepted {
            self.dropped += 1;
        } else if let Some(key) = key {
            self.entered += 1;
            self.evicted += u64::from(connections.enter(key, now) == Entered::InPlaceOfAnother);
        }
        is_accepted
    }
}
