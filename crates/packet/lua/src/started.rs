//! A script that was started in an interpreter of its own, on its way from the thread that started
//! it to the worker that runs it, or from there to the thread that frees it.
#![allow(unsafe_code)]

use std::rc::Rc;
use std::time::Duration;

use carina_engine::frames::AppContext;
use carina_sys::{CpuClock, cpu_time_ns};

use crate::config::LuaConfig;
use crate::state::{Instance, State};

/// An interpreter in which a script has made its app, and nothing runs.
pub(crate) struct Started {
    pub(crate) state: Rc<State>,
    pub(crate) instance: Instance,
    /// CPU time that it took to start.
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
    /// One line that says what is wrong, and where in the script.
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

    /// The parts of an app that has gone; `None` when another app has the same interpreter, which
    /// stays on its thread.
    pub(crate) fn of(state: Rc<State>, instance: Instance) -> Option<Started> {
        let is_last = Rc::strong_count(&state) == 1 && Rc::weak_count(&state) == 0;
        is_last.then_some(Started {
            state,
            instance,
            cpu: Duration::ZERO,
        })
    }

    /// Frees the interpreter on a thread of its own: it may have a gigabyte.
    pub(crate) fn discard(self) {
        // Without a thread it is freed here.
        let thread = std::thread::Builder::new().name("lua-discard".to_owned());
        drop(thread.spawn(move || drop(self)));
    }
}

/// Loading a script and making its app may take so many budgets of a call.
const START_BUDGETS: u32 = 40;
