//! **lua**: an app written in Lua.
//!
//! - inputs: any names, up to 64
//! - outputs: any names, up to 64
//! - configuration:
//!   - `file`: path of the script, relative to the graph's file
//!   - `config`: a table that is passed to the script
//!   - `budget_ms`: CPU time of one call, 1 to 10000 (default: 50); `memory_mb`: memory, 2 to 1024
//!     (default: 64)
//!   - `allow`: libraries with access to the system that the script may use: `"io"`, `"os"`,
//!     `"ffi"` (default: none)
//! - counters: those that the script creates; `drop_freed`: frames that the script freed;
//!   `drop_forgotten`: frames that it received but neither sent nor freed; `drop_stopped`: frames
//!   that arrived after the script was stopped; `stopped`: 1 after the script was stopped
//! - cost: one call of the script per burst, and what the script does in it
//!
//! `docs/how-to/lua.md` describes what a script can do.

use std::any::Any;
use std::rc::Rc;
use std::time::Duration;

use carina_frame::Frame;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Notice, Notices, Opened, Outside, PortList,
    PortNames, Ports,
};
use carina_time::Instant;
use mlua::{Function, Table, Value};

use crate::block::{MADE, PORTS_MAX};
use crate::config::{COUNTERS, LuaConfig};
use crate::failure;
use crate::started::Started;
use crate::state::{Instance, State};

/// The running app `lua`: passes frames to a script in Lua, which decides about them.
pub struct LuaApp {
    state: Rc<State>,
    instance: Instance,
    /// The table of the app that this one replaces, until the script's `inherit` has been called.
    predecessor: Option<Table>,
    script: String,
    memory_bytes: usize,
    budget: Duration,
    /// Frames that the script received in this call, at their places in the block.
    held: Vec<Option<Frame>>,
    /// Number of frames of each input that the script can see in this call.
    offered: Vec<usize>,
    next_tick: Instant,
    /// When the script asked to be pulled next; `None` if it did not ask.
    next_pull: Option<Instant>,
    /// Whether the last pull sent frames, so that the script may have more.
    has_more: bool,
    /// Whether the script received no frame in the last `push`, although frames wait at an input.
    is_blocked: bool,
    stopped: Option<Stop>,
    notices: Notices,
    name: String,
    counts: Counts,
}

/// Why a script was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The script's memory is used up, so another script cannot take over its interpreter.
    Memory,
    /// The script raised an error, or did not return in time.
    Failed,
}

struct Counts {
    freed: Counter,
    forgotten: Counter,
    after_stop: Counter,
    stopped: Counter,
}

/// Why a script could not be started: one line that begins with the place in the script.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct StartError(String);

impl AppConfig for LuaConfig {
    const KIND: &'static str = "lua";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::Any;
    const OPENS: bool = true;

    type App = LuaApp;

    /// Loads the script in an interpreter of its own, and lets it make its app.
    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        let started = Started::new(self, context);
        Some(match started {
            Ok(started) => Ok(Box::new(started)),
            Err(text) => Err(StartError(text).into()),
        })
    }

    /// A script that may use such libraries can affect the system as soon as it is loaded.
    fn outside(&self) -> Outside {
        if self.allow.is_empty() {
            Outside::Nothing
        } else {
            Outside::Something
        }
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<LuaApp, AppError> {
        let started = match context.take_opened()? {
            Some(started) => started,
            None => Started::new(self, context).map_err(StartError)?,
        };
        let old: Option<&LuaApp> = context.running();
        let old = old.filter(|old| old.stopped != Some(Stop::Memory) && old.state.suits(self));
        let (state, instance, predecessor) = match old {
            Some(old) if started.instance.inherit.is_some() => {
                let instance = self.start_beside(old, &started).map_err(StartError)?;
                started.discard();
                old.state.make_counters(context);
                let table = old.instance.table.clone();
                (Rc::clone(&old.state), instance, Some(table))
            }
            _ => {
                started.state.adopt(context, old.map(|old| &*old.state));
                (started.state, started.instance, None)
            }
        };
        let [freed, forgotten, after_stop, stopped] = COUNTERS.map(|name| context.counter(name));
        Ok(LuaApp {
            state,
            instance,
            predecessor,
            script: self.script.name.to_string(),
            memory_bytes: self.memory_bytes,
            budget: Duration::from_millis(self.budget_ms),
            held: (0..MADE).map(|_| None).collect(),
            offered: Vec::new(),
            next_tick: Instant::ZERO,
            next_pull: None,
            has_more: false,
            is_blocked: false,
            stopped: None,
            notices: context.notices().clone(),
            name: context.name().to_owned(),
            counts: Counts {
                freed,
                forgotten,
                after_stop,
                stopped,
            },
        })
    }
}

impl LuaConfig {
    /// Starts the script a second time, in the interpreter of the app that it replaces, because it
    /// inherits tables from there. All apps of the worker wait meanwhile, so the start has the
    /// budget of one call.
    fn start_beside(&self, old: &LuaApp, started: &Started) -> Result<Instance, String> {
        let budget = Duration::from_millis(self.budget_ms);
        if started.cpu > budget {
            return Err(format!(
                "{}: the script takes {} ms to load; a script with `inherit` is loaded beside the \
                 one that runs, which must take at most {} ms (budget_ms)",
                self.script.name,
                started.cpu.as_millis(),
                self.budget_ms
            ));
        }
        old.state.start(self, budget)
    }
}

impl FrameApp for LuaApp {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        let LuaApp {
            state,
            instance,
            predecessor,
            ..
        } = *self;
        drop(predecessor);
        Some(Box::new(Started::of(state, instance)?))
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        if self.stopped.is_some() {
            return;
        }
        if self.predecessor.is_some() {
            self.inherit(ports);
        }
        let now = ports.now();
        if self.instance.tick.is_some() && now >= self.next_tick {
            let every = (self.instance.tick_every_s * 1e9) as u64;
            self.next_tick = now + carina_time::Duration::from_nanos(every);
            self.visit(ports, |instance| instance.tick.as_ref());
        }
        let is_due = self.next_pull.is_none_or(|due| now >= due);
        if self.instance.pull.is_some() && self.stopped.is_none() && is_due {
            let (wanted, sent) = self.visit(ports, |instance| instance.pull.as_ref());
            self.has_more = sent > 0;
            self.next_pull = wanted.map(|seconds| Instant::from_nanos((seconds * 1e9) as u64));
        }
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        if self.stopped.is_none() && self.instance.push.is_some() {
            let before = waiting(ports);
            self.visit(ports, |instance| instance.push.as_ref());
            self.is_blocked = waiting(ports) == before;
        }
        if self.stopped.is_some() {
            let mut dropped = 0;
            for input in 0..ports.inputs() {
                ports.drain(input, |frame| {
                    dropped += 1;
                    drop(frame);
                });
            }
            self.counts.after_stop.add(dropped);
        }
    }

    fn rewired(&mut self, ports: &PortNames<'_>) {
        if ports.inputs.len() > PORTS_MAX || ports.outputs.len() > PORTS_MAX {
            let text = format!(
                "{}: the app has more than {PORTS_MAX} inputs or outputs",
                self.script
            );
            return self.stop(Stop::Failed, text);
        }
        if let Err(error) = self.name_ports(ports) {
            let text = failure::line_of(&error, &self.script, self.memory_bytes);
            self.stop(Stop::Memory, text);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.stopped.is_some() {
            return None;
        }
        let tick = self.instance.tick.as_ref().map(|_| self.next_tick);
        [tick, self.next_pull].into_iter().flatten().min()
    }

    fn arm(&mut self) -> bool {
        self.stopped.is_some() || self.next_pull.is_some() || !self.has_more
    }

    fn is_blocked(&self) -> bool {
        self.stopped.is_none() && (self.is_blocked || self.instance.push.is_none())
    }
}

fn waiting(ports: &Ports<'_>) -> usize {
    (0..ports.inputs()).map(|input| ports.waiting(input)).sum()
}

impl LuaApp {
    /// Calls a method of the script's app, which can receive the frames at the inputs. Returns the
    /// number that the method returned, and how many frames it sent.
    fn visit(
        &mut self,
        ports: &mut Ports<'_>,
        method: impl FnOnce(&Instance) -> Option<&Function>,
    ) -> (Option<f64>, usize) {
        let state = Rc::clone(&self.state);
        state
            .shared
            .block
            .begin(ports.now().as_nanos() as f64 / 1e9);
        self.offer(ports);
        let Some(method) = method(&self.instance) else {
            return (None, 0);
        };
        let call = || method.call::<Value>(&self.instance.table);
        let (returned, overrun) = state.guard.run(self.budget, call);
        let sent = self.collect(ports);
        state.publish();
        match (returned, overrun) {
            (_, Some(place)) => {
                self.stop(Stop::Failed, failure::overrun(&place, self.budget));
                (None, sent)
            }
            (Ok(value), None) => (
                value
                    .as_f64()
                    .filter(|number| number.is_finite() && *number >= 0.0),
                sent,
            ),
            (Err(error), None) => {
                self.fail(&error);
                (None, sent)
            }
        }
    }

    /// Describes the waiting frames in the block, as many as it has places for.
    fn offer(&mut self, ports: &mut Ports<'_>) {
        let block = &self.state.shared.block;
        let (inputs, outputs) = (ports.inputs(), ports.outputs());
        block.inputs.set(inputs as u32);
        block.outputs.set(outputs as u32);
        // Each input has an equal share of the places.
        let share = MADE / inputs.max(1);
        let mut place = 0;
        self.offered.clear();
        for input in 0..inputs {
            block.first[input].set(place as u32);
            block.taken[input].set(0);
            let first = place;
            for frame in ports.frames_mut(input).take(share) {
                block.describe(place, frame);
                block.give(place);
                place += 1;
            }
            block.waiting[input].set((place - first) as u32);
            self.offered.push(place - first);
        }
        for output in 0..outputs {
            block.room[output].set(ports.room(output) as i32);
        }
    }

    /// Takes the frames that the script received off their links, and puts those that it sent on
    /// the outputs; returns the number of frames sent.
    fn collect(&mut self, ports: &mut Ports<'_>) -> usize {
        let shared = &self.state.shared;
        let block = &shared.block;
        let (mut place, mut forgotten) = (0, 0);
        for (input, offered) in self.offered.iter().enumerate() {
            let taken = block.taken[input].get() as usize;
            for number in 0..*offered {
                let is_left = block.take_back(place);
                if number < taken {
                    forgotten += u64::from(is_left);
                    self.held[place] = ports.receive(input);
                }
                place += 1;
            }
        }
        let mut sent = 0;
        let mut fresh = shared.fresh.borrow_mut();
        for (place, output) in block.sent() {
            let frame = match place.checked_sub(MADE) {
                None => self.held[place].take(),
                Some(at) => fresh.get_mut(at).and_then(Option::take),
            };
            // A packet that the script sent without receiving it stays on its link.
            let Some(mut frame) = frame else { continue };
            if output < ports.outputs() && block.reshape(place, &mut frame) {
                ports.transmit(output, frame);
                sent += 1;
            }
        }
        drop(fresh);
        let mut dropped = shared.drop_made();
        for frame in &mut self.held[..place] {
            dropped += u64::from(frame.take().is_some());
        }
        self.counts.forgotten.add(forgotten);
        self.counts.freed.add(dropped.saturating_sub(forgotten));
        sent
    }

    /// Calls the script's `inherit` with the table of the app that it replaces.
    fn inherit(&mut self, ports: &mut Ports<'_>) {
        let Some(old) = self.predecessor.take() else {
            return;
        };
        let Some(inherit) = &self.instance.inherit else {
            return;
        };
        let block = &self.state.shared.block;
        block.begin(ports.now().as_nanos() as f64 / 1e9);
        block.inputs.set(0);
        block.outputs.set(0);
        let call = || inherit.call::<()>((&self.instance.table, old));
        let (returned, overrun) = self.state.guard.run(self.budget, call);
        self.state.shared.drop_made();
        self.state.publish();
        match (returned, overrun) {
            (_, Some(place)) => self.stop(Stop::Failed, failure::overrun(&place, self.budget)),
            (Ok(()), None) => {}
            (Err(error), None) => self.fail(&error),
        }
    }

    /// Gives the script's app the tables `input` and `output`: its ports by name, and by position
    /// in the order of the names.
    fn name_ports(&self, ports: &PortNames<'_>) -> mlua::Result<()> {
        for (key, names, first) in [
            ("input", ports.inputs, 0),
            ("output", ports.outputs, PORTS_MAX),
        ] {
            let table = self.state.lua.create_table()?;
            for (at, name) in names.iter().enumerate() {
                table.set(name.as_str(), first + at)?;
                table.raw_set(at + 1, first + at)?;
            }
            self.instance.table.raw_set(key, table)?;
        }
        Ok(())
    }

    fn fail(&mut self, error: &mlua::Error) {
        let stop = match error {
            mlua::Error::MemoryError(_) => Stop::Memory,
            _ => Stop::Failed,
        };
        let text = failure::line_of(error, &self.script, self.memory_bytes);
        self.stop(stop, text);
    }

    fn stop(&mut self, stop: Stop, text: String) {
        self.stopped = Some(stop);
        self.counts.stopped.set(1);
        self.notices.add(Notice {
            app: self.name.clone(),
            text,
            has_stopped: true,
        });
    }
}
