//! The interpreter: its libraries, its limits, and what it shares with the app.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppContext, FRAME_BURST, Notice, Notices};
use mlua::chunk::ChunkMode;
use mlua::{Function, LightUserData, Lua, LuaOptions, StdLib, Table, Value};

use crate::block::{Block, COUNTERS_MAX, MADE};
use crate::config::{COUNTERS, Library, LuaConfig};
use crate::failure::{self, OWN_CHUNKS};
use crate::watchdog::Guard;

/// An interpreter with the prelude. A script and the one that replaces it share an interpreter if
/// the new script inherits tables.
pub(crate) struct State {
    pub(crate) lua: Lua,
    pub(crate) shared: Rc<Shared>,
    pub(crate) guard: Arc<Guard>,
    /// Libraries that the script may use.
    allow: Vec<Library>,
    /// A function of the prelude: each call returns a new table with the global variables for one
    /// script.
    globals: Function,
    /// Counters that scripts have created, at their index in the block.
    counters: RefCell<Vec<Counter>>,
}

/// The part of the state that functions called from Lua also use.
pub(crate) struct Shared {
    pub(crate) block: Box<Block>,
    /// New packets; index 0 belongs to place [`MADE`].
    pub(crate) fresh: RefCell<Vec<Option<Frame>>>,
    /// Number of new packets that had been taken before this call.
    pub(crate) made_before: Cell<u32>,
    pool: Pool,
    counter_names: RefCell<Vec<String>>,
    /// Whether a script is being started. Only then it can create counters.
    is_starting: Cell<bool>,
    app: String,
    notices: RefCell<Notices>,
}

/// The app that a script has made, and its methods.
pub(crate) struct Instance {
    pub(crate) table: Table,
    pub(crate) pull: Option<Function>,
    pub(crate) push: Option<Function>,
    pub(crate) tick: Option<Function>,
    pub(crate) inherit: Option<Function>,
    pub(crate) tick_every_s: f64,
}

impl State {
    /// Makes an interpreter with the limits of `config`. Its notices are kept until an app takes it
    /// over by [`State::adopt`].
    ///
    /// # Errors
    /// Memory is insufficient, or the watchdog's thread cannot be started: one line.
    pub(crate) fn new(config: &LuaConfig, context: &AppContext<'_>) -> Result<State, String> {
        let failed = |error: mlua::Error| error.to_string();
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::BIT | StdLib::JIT;
        // SAFETY: `ffi` can do anything; only the prelude has it, and a script if its author says
        // so. Scripts are loaded as text and never as bytecode.
        let lua = unsafe {
            let options = LuaOptions::new().catch_rust_panics(false);
            Lua::unsafe_new_with(libraries | StdLib::FFI, options)
        };
        lua.set_memory_limit(config.memory_bytes).map_err(failed)?;
        let mut main = std::ptr::null_mut();
        // SAFETY: the closure does not touch the stack. It runs outside of any call, so the state
        // that it gets is the main one.
        unsafe { lua.exec_raw::<()>((), |state| main = state) }.map_err(failed)?;
        let main = NonNull::new(main).ok_or("the interpreter has no main state")?;
        let shared = Rc::new(Shared {
            block: Block::new(),
            fresh: RefCell::new((0..MADE).map(|_| None).collect()),
            made_before: Cell::new(0),
            pool: context.pool().clone(),
            counter_names: RefCell::default(),
            is_starting: Cell::new(false),
            app: context.name().to_owned(),
            notices: RefCell::default(),
        });
        let globals = globals(&lua, &shared, &config.allow).map_err(failed)?;
        // SAFETY: `lua` is open until this value is dropped, which closes the guard first.
        let guard = unsafe { Guard::watch(main) };
        let guard = guard.map_err(|error| format!("a thread for the watchdog: {error}"))?;
        Ok(State {
            lua,
            shared,
            guard,
            allow: config.allow.clone(),
            globals,
            counters: RefCell::default(),
        })
    }

    /// Whether a script with this configuration can run in this interpreter.
    pub(crate) fn suits(&self, config: &LuaConfig) -> bool {
        self.allow == config.allow
    }

    /// Loads a script and lets it make its app, within a budget of CPU time.
    ///
    /// # Errors
    /// The script is wrong or exceeds its limits: one line with the place in the script.
    pub(crate) fn start(&self, config: &LuaConfig, budget: Duration) -> Result<Instance, String> {
        let name = &config.script.name;
        let describe = |error: mlua::Error| failure::line_of(&error, name, config.memory_bytes);
        self.lua
            .set_memory_limit(config.memory_bytes)
            .map_err(describe)?;
        self.shared.block.begin(0.0);
        self.shared.block.inputs.set(0);
        self.shared.block.outputs.set(0);
        self.shared.is_starting.set(true);
        let (made, overrun) = self.guard.run(budget, || self.make(config));
        self.shared.is_starting.set(false);
        self.shared.drop_made();
        if let Some(place) = overrun {
            return Err(failure::overrun(&place, budget));
        }
        made.map_err(describe)
    }

    /// Makes this the interpreter of an app. Shows its counters, which continue from the counters
    /// of the same names in the interpreter `before`, and passes on the notices kept so far.
    pub(crate) fn adopt(&self, context: &AppContext<'_>, before: Option<&State>) {
        let notices = self.shared.notices.replace(context.notices().clone());
        notices
            .take()
            .0
            .into_iter()
            .for_each(|notice| context.notices().add(notice));
        if let Some(before) = before {
            let old = before.shared.counter_names.borrow();
            for (at, name) in self.shared.counter_names.borrow().iter().enumerate() {
                let found = old.iter().position(|known| known == name);
                let counted = found.map_or(0.0, |at| before.shared.block.counter[at].get());
                let value = &self.shared.block.counter[at];
                value.set(value.get() + counted);
            }
        }
        self.shared.block.is_counted.set(1);
        self.make_counters(context);
    }

    /// Registers the counters that scripts have created since the last call.
    pub(crate) fn make_counters(&self, context: &AppContext<'_>) {
        let names = self.shared.counter_names.borrow();
        let mut counters = self.counters.borrow_mut();
        while counters.len() < names.len() {
            let counter = context.counter(&names[counters.len()]);
            counters.push(counter);
        }
        drop(counters);
        self.publish();
    }

    fn make(&self, config: &LuaConfig) -> mlua::Result<Instance> {
        let name = &config.script.name;
        let wrong = |text: &str| mlua::Error::runtime(format!("{name}: {text}"));
        let globals: Table = self.globals.call(())?;
        let chunk = self.lua.load(&*config.script.text);
        let chunk = chunk
            .set_name(format!("={name}"))
            .set_mode(ChunkMode::Text)
            .set_environment(globals);
        // `eval` would first try to parse the whole script as an expression.
        let Value::Table(class) = chunk.into_function()?.call(())? else {
            return Err(wrong(
                "the script must return a table with the methods of the app",
            ));
        };
        let argument = table_of(&self.lua, &config.config)?;
        let table = match class.get("new")? {
            Value::Function(new) => match new.call((&class, argument))? {
                Value::Table(table) => table,
                _ => return Err(wrong("new must return a table")),
            },
            Value::Nil => {
                let (table, behind) = (self.lua.create_table()?, self.lua.create_table()?);
                table.set("config", argument)?;
                behind.set("__index", class)?;
                table.set_metatable(Some(behind))?;
                table
            }
            _ => return Err(wrong("new must be a function")),
        };
        let method = |name: &str| -> mlua::Result<Option<Function>> {
            match table.get(name)? {
                Value::Nil => Ok(None),
                Value::Function(function) => Ok(Some(function)),
                _ => Err(wrong(&format!("{name} must be a function"))),
            }
        };
        let (pull, push, tick) = (method("pull")?, method("push")?, method("tick")?);
        let inherit = method("inherit")?;
        if pull.is_none() && push.is_none() && tick.is_none() {
            return Err(wrong(
                "the app must have at least one of the methods push, pull and tick",
            ));
        }
        let tick_every_s = match table.get("tick_every")? {
            Value::Nil => TICK_S,
            Value::Number(seconds) if seconds >= TICK_S_MIN => seconds,
            Value::Integer(seconds) if seconds >= 1 => seconds as f64,
            _ => {
                return Err(wrong(
                    "tick_every must be a number of seconds, 0.001 or more",
                ));
            }
        };
        Ok(Instance {
            table,
            pull,
            push,
            tick,
            inherit,
            tick_every_s,
        })
    }

    /// Publishes the script's counters to other processes.
    pub(crate) fn publish(&self) {
        let block = &self.shared.block;
        if block.is_counted.replace(0) != 0 {
            for (counter, value) in self.counters.borrow().iter().zip(&block.counter) {
                // The conversion turns negative values into 0.
                counter.set(value.get() as u64);
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.guard.close();
    }
}

impl Shared {
    /// Prepares more new packets, until this call has its maximum or the pool is empty.
    fn refill(&self) {
        let block = &self.block;
        let begun = self.made_before.get();
        let mut fresh = self.fresh.borrow_mut();
        for _ in 0..FRAME_BURST {
            let ready = block.ready.get();
            if ready.wrapping_sub(begun) as usize >= MADE {
                return;
            }
            let Some(mut frame) = self.pool.frame_of(&[]) else {
                return;
            };
            let at = ready as usize % MADE;
            block.describe(MADE + at, &mut frame);
            fresh[at] = Some(frame);
            block.ready.set(ready.wrapping_add(1));
        }
    }

    /// Ends a call: drops the new packets that were not sent, and returns their number.
    pub(crate) fn drop_made(&self) -> u64 {
        let (begun, made) = (self.made_before.get(), self.block.made.get());
        self.made_before.set(made);
        let mut dropped = 0;
        let mut fresh = self.fresh.borrow_mut();
        for number in 0..(made.wrapping_sub(begun) as usize).min(MADE) {
            let at = (begun as usize + number) % MADE;
            self.block.take_back(MADE + at);
            dropped += u64::from(fresh[at].take().is_some());
        }
        dropped
    }

    /// The index of a counter in the block; creates the counter if it is new.
    fn counter(&self, name: &str) -> Result<usize, String> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.len() > COUNTER_NAME_MAX || !name.bytes().all(is_word) {
            return Err(format!(
                "counter {name:?}: a name must have 1 to {COUNTER_NAME_MAX} letters, digits and _"
            ));
        }
        if COUNTERS.contains(&name) {
            return Err(format!(
                "counter {name}: this name is reserved: every Lua app has a counter with it"
            ));
        }
        let mut names = self.counter_names.borrow_mut();
        if let Some(at) = names.iter().position(|known| known == name) {
            return Ok(at);
        }
        if !self.is_starting.get() {
            return Err(
                "counters must be created while the app starts: at the top of the script or in new"
                    .to_owned(),
            );
        }
        if names.len() == COUNTERS_MAX {
            return Err(format!("an app has at most {COUNTERS_MAX} counters"));
        }
        names.push(name.to_owned());
        self.block.counters.set(names.len() as u32);
        Ok(names.len() - 1)
    }
}

/// Loads the prelude, and returns its function that makes a table of global variables for a script.
fn globals(lua: &Lua, shared: &Rc<Shared>, allow: &[Library]) -> mlua::Result<Function> {
    let chunk = |text: &'static str| lua.load(text).set_name(format!("={OWN_CHUNKS}"));
    let all = lua.globals();
    let (ffi, bit): (Table, Table) = (all.get("ffi")?, all.get("bit")?);
    let allowed = lua.create_table()?;
    for library in allow {
        match library {
            Library::Io => lua.load_std_libs(StdLib::IO)?,
            Library::Os => lua.load_std_libs(StdLib::OS)?,
            Library::Ffi => {}
        }
        allowed.set(library.name(), all.get::<Value>(library.name())?)?;
    }
    let address = LightUserData(std::ptr::from_ref::<Block>(&shared.block).cast_mut().cast());
    let patterns: Table = chunk(include_str!("lua/patterns.lua")).call(())?;
    let host = host(lua, shared)?;
    let prelude = chunk(include_str!("lua/prelude.lua"));
    let api: Table = prelude.call((ffi, bit, address, host))?;
    let theirs = Rc::clone(shared);
    let notice = lua.create_function(move |_, text: mlua::LuaString| {
        let text = text.to_string_lossy();
        let cut = text.floor_char_boundary(NOTICE_BYTES_MAX);
        theirs.notices.borrow().add(Notice {
            app: theirs.app.clone(),
            text: text[..cut].replace(char::is_control, " "),
            has_stopped: false,
        });
        Ok(())
    })?;
    let sandbox = chunk(include_str!("lua/sandbox.lua"));
    let make: Function = sandbox.call((patterns, notice, allowed))?;
    make.bind(api)
}

/// The functions that the prelude needs in addition to the block.
fn host(lua: &Lua, shared: &Rc<Shared>) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    host.set("block_bytes", size_of::<Block>())?;
    let theirs = Rc::clone(shared);
    let refill = lua.create_function(move |_, ()| {
        theirs.refill();
        Ok(())
    })?;
    host.set("refill", refill)?;
    let theirs = Rc::clone(shared);
    let counter = lua.create_function(move |_, name: String| {
        Ok(match theirs.counter(&name) {
            Ok(number) => (Some(number), None),
            Err(reason) => (None, Some(reason)),
        })
    })?;
    host.set("counter", counter)?;
    let set = lua.create_function(|lua, metatable: Table| {
        lua.set_type_metatable::<mlua::Number>(Some(metatable));
        Ok(())
    })?;
    host.set("set_number_metatable", set)?;
    Ok(host)
}

/// Converts a TOML table to a Lua table.
fn table_of(lua: &Lua, table: &toml::Table) -> mlua::Result<Table> {
    let made = lua.create_table()?;
    for (key, value) in table {
        made.set(key.as_str(), value_of(lua, value)?)?;
    }
    Ok(made)
}

fn value_of(lua: &Lua, value: &toml::Value) -> mlua::Result<Value> {
    Ok(match value {
        toml::Value::String(text) => Value::String(lua.create_string(text)?),
        toml::Value::Integer(number) => Value::Number(*number as f64),
        toml::Value::Float(number) => Value::Number(*number),
        toml::Value::Boolean(is_true) => Value::Boolean(*is_true),
        toml::Value::Datetime(time) => Value::String(lua.create_string(time.to_string())?),
        toml::Value::Array(list) => {
            let made = lua.create_table()?;
            for value in list {
                made.push(value_of(lua, value)?)?;
            }
            Value::Table(made)
        }
        toml::Value::Table(table) => Value::Table(table_of(lua, table)?),
    })
}

/// Default and shortest interval between two ticks of a script, in seconds.
const TICK_S: f64 = 0.1;
const TICK_S_MIN: f64 = 0.001;
const COUNTER_NAME_MAX: usize = 48;
/// Length at which a line that a script prints is truncated, in bytes.
const NOTICE_BYTES_MAX: usize = 512;
