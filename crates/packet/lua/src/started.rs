//! A started script in an interpreter of its own, which moves to another thread: from the one that
//! started it to its worker, or from its worker to the one that frees it.
#![allow(unsafe_code)]

use std::rc::Rc;
use std::time::Duration;

use carina_frame_engine::AppContext;
use carina_sys::{CpuClock, cpu_time_ns};

use crate::config::LuaConfig;
use crate::state::{Instance, State};

/// An interpreter in which a script has made its app, and in which no code runs at present.
pub(crate) struct Started {
    pub(crate) state: Rc<State>,
    pub(crate) instance: Instance,
    /// CPU time that starting the script took.
    pub(crate) cpu: Duration,
}

// SAFETY: the interpreter and everything that refers to it are in this value, so that they go to
// another thread together: `Started::new` has made them and given none away, and `Started::of`
// takes the last reference. No code of Lua runs meanwhile. Neither LuaJIT nor mlua keeps anything
// of it in a thread: a call takes the thread that it is made on. The watchdog's thread has the
// main state behind a lock.
unsafe impl Send for Started {}

impl Started {
    /// Starts a script in a new interpreter.
    ///
    /// # Errors
    /// The script is wrong or exceeds its limits: one line with the place in the script.
    pub(crate) fn new(config: &LuaConfig, context: &AppContext<'_>) -> Result<Started, String> {
        let budget = Duration::from_millis(config.budget_ms) * START_BUDGETS;
        let begin = cpu_time_ns(CpuClock::Thread);
        let state = Rc::new(State::new(config, context)?);
        let instance = state.start(config, budget)?;
        let cpu = Duration::from_nanos(cpu_time_ns(CpuClock::Thread).saturating_sub(begin));
        Ok(Started {
            state,
            instance,
            cpu,
        })
    }

    /// The parts of an app that has ended; `None` if another app uses the same interpreter, which
    /// then stays on its thread.
    pub(crate) fn of(state: Rc<State>, instance: Instance) -> Option<Started> {
        let is_last = Rc::strong_count(&state) == 1 && Rc::weak_count(&state) == 0;
        is_last.then_some(Started {
            state,
            instance,
            cpu: Duration::ZERO,
        })
    }

    /// Frees the interpreter on a thread of its own, because it may have a gigabyte of memory.
    pub(crate) fn discard(self) {
        // If no thread can be started, it is freed here.
        let thread = std::thread::Builder::new().name("lua-discard".to_owned());
        drop(thread.spawn(move || drop(self)));
    }
}

/// Loading a script and making its app may take this many times the budget of a call.
const START_BUDGETS: u32 = 40;
