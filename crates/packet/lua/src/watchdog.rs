//! Stops scripts that do not return.
//!
//! A script has a budget of CPU time for each call. The app marks the beginning and the end of a
//! call with two stores, and reads no clock. One thread of the process, the watchdog, examines the
//! marks of all apps every 10 ms. If a call has lasted longer than its budget, the watchdog sets a
//! hook in that interpreter. LuaJIT then calls the hook before the next instruction. A trace, which
//! is machine code without such calls, checks for hooks once per loop, because LuaJIT is built with
//! `LUAJIT_ENABLE_CHECKHOOK` (`.cargo/config.toml`). The hook runs on the worker and reads the
//! thread's CPU time, so that waiting for the processor does not count. It raises an error when the
//! budget is exceeded. The hook stays set, so a script cannot continue by catching the error.
//!
//! While LuaJIT runs a hook, and while the hook's error searches for its handler, LuaJIT calls no
//! other hook. A handler of `xpcall` would run in this state and could not be stopped. The
//! sandbox's `xpcall` therefore calls its handler afterwards.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use carina_sys::{CpuClock, cpu_time_ns};
use mlua::ffi;

use crate::failure::OWN_CHUNKS;

/// Monitors the calls of one interpreter.
pub(crate) struct Guard {
    /// Odd while a call runs; has a different value in each call.
    call: AtomicU64,
    budget_ns: AtomicU64,
    /// CPU time of the thread when the hook first ran in this call, in ns; 0 before that.
    cpu_begin_ns: AtomicU64,
    /// The interpreter; `None` once it is closed.
    state: Mutex<Option<StatePointer>>,
    /// The script's place when it exceeded its budget; `None` if it did not.
    overrun: Mutex<Option<String>>,
}

struct StatePointer(NonNull<ffi::lua_State>);

// SAFETY: another thread only hands it to `lua_sethook`; see there.
unsafe impl Send for StatePointer {}

/// The guards of all interpreters. The watchdog's thread runs as long as there are any.
static GUARDS: Mutex<Watched> = Mutex::new(Watched {
    guards: Vec::new(),
    is_running: false,
});

struct Watched {
    guards: Vec<Weak<Guard>>,
    is_running: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guard {
    /// Monitors an interpreter until [`Guard::close`].
    ///
    /// # Safety
    /// `state` must be the main state of an interpreter that is open until [`Guard::close`] has
    /// returned.
    ///
    /// # Errors
    /// The watchdog's thread cannot be started.
    pub(crate) unsafe fn watch(state: NonNull<ffi::lua_State>) -> std::io::Result<Arc<Guard>> {
        let guard = Arc::new(Guard {
            call: AtomicU64::new(0),
            budget_ns: AtomicU64::new(0),
            cpu_begin_ns: AtomicU64::new(0),
            state: Mutex::new(Some(StatePointer(state))),
            overrun: Mutex::new(None),
        });
        let mut watched = lock(&GUARDS);
        watched.guards.push(Arc::downgrade(&guard));
        if !watched.is_running {
            std::thread::Builder::new()
                .name("lua-watchdog".to_owned())
                .spawn(look_at_all)?;
            watched.is_running = true;
        }
        Ok(guard)
    }

    /// Ends the monitoring, before the interpreter is closed.
    pub(crate) fn close(&self) {
        *lock(&self.state) = None;
    }

    /// Runs a call with a budget of CPU time. The second result is the script's place when it
    /// exceeded the budget, or `None`.
    pub(crate) fn run<R>(
        self: &Arc<Guard>,
        budget: Duration,
        call: impl FnOnce() -> R,
    ) -> (R, Option<String>) {
        let budget_ns = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
        self.budget_ns.store(budget_ns, Ordering::Relaxed);
        let number = self.call.load(Ordering::Relaxed);
        let outer = CURRENT.replace(Some(Arc::as_ptr(self)));
        self.call.store(number + 1, Ordering::Release);
        let result = call();
        self.call.store(number + 2, Ordering::Release);
        CURRENT.set(outer);
        // Overruns are rare. A hook that has run has stored a number here.
        if self.cpu_begin_ns.load(Ordering::Relaxed) == 0 {
            return (result, None);
        }
        (result, self.end_overrun())
    }

    #[cold]
    fn end_overrun(&self) -> Option<String> {
        if let Some(state) = &*lock(&self.state) {
            // SAFETY: the interpreter is open while the lock is held, and runs on this thread.
            unsafe { ffi::lua_sethook(state.0.as_ptr(), None, 0, 0) };
        }
        self.cpu_begin_ns.store(0, Ordering::Relaxed);
        lock(&self.overrun).take()
    }

    /// Makes the interpreter call the hook before its next instruction.
    fn interrupt(&self) {
        if let Some(state) = &*lock(&self.state) {
            // Clearing the hook first makes sure that the second call sets it, whatever state an
            // earlier attempt left in a race with the interpreter's thread.
            //
            // SAFETY: the interpreter is open while the lock is held. LuaJIT lets another thread
            // set an instruction hook with a count of 1 while the interpreter runs: "You can set
            // the instruction hook via lua_sethook() with a count of 1 from a signal handler or
            // another native thread" (lj_record.c, at LUAJIT_ENABLE_CHECKHOOK).
            unsafe {
                ffi::lua_sethook(state.0.as_ptr(), None, 0, 0);
                ffi::lua_sethook(state.0.as_ptr(), Some(over_budget), ffi::LUA_MASKCOUNT, 1);
            }
        }
    }
}

thread_local! {
    /// The guard of the call that is running on this thread.
    static CURRENT: std::cell::Cell<Option<*const Guard>> = const { std::cell::Cell::new(None) };
}

/// The hook: raises an error if the call has exceeded its budget of CPU time.
unsafe extern "C-unwind" fn over_budget(state: *mut ffi::lua_State, record: *mut ffi::lua_Debug) {
    let Some(guard) = CURRENT.get() else {
        // The hook was set only after its call had ended.
        // SAFETY: the interpreter calls this hook on its own thread.
        unsafe { ffi::lua_sethook(state, None, 0, 0) };
        return;
    };
    // SAFETY: `Guard::run` borrows the guard while this pointer is set.
    let guard = unsafe { &*guard };
    let now = cpu_time_ns(CpuClock::Thread);
    let begin = guard.cpu_begin_ns.load(Ordering::Relaxed);
    let budget_ns = guard.budget_ns.load(Ordering::Relaxed);
    if begin == 0 {
        guard.cpu_begin_ns.store(now.max(1), Ordering::Relaxed);
    }
    if begin == 0 || now.saturating_sub(begin) < budget_ns {
        // Clears the hook, so that the script continues at full speed. The watchdog sets it again.
        // SAFETY: as above.
        unsafe { ffi::lua_sethook(state, None, 0, 0) };
        return;
    }
    {
        let mut overrun = lock(&guard.overrun);
        if overrun.is_none() {
            // SAFETY: the interpreter passes the hook a record of the running function.
            *overrun = Some(unsafe { place(state, record) });
        }
    }
    // SAFETY: this frame holds no value that must be dropped; the error unwinds to the call.
    unsafe {
        ffi::lua_pushstring(state, c"the budget of this call is over".as_ptr());
        ffi::lua_error(state);
    }
}

/// `FILE:LINE` of the innermost function that belongs to a script.
///
/// # Safety
/// Must be called from a hook, with the hook's arguments.
unsafe fn place(state: *mut ffi::lua_State, record: *mut ffi::lua_Debug) -> String {
    let mut level: c_int = 0;
    loop {
        // SAFETY: `lua_getstack` fills the record for a running function before it is read.
        let (name, line) = unsafe {
            if ffi::lua_getstack(state, level, record) == 0 {
                return "?".to_owned();
            }
            ffi::lua_getinfo(state, c"Sl".as_ptr(), record);
            let name = CStr::from_ptr((*record).short_src.as_ptr());
            (name.to_string_lossy().into_owned(), (*record).currentline)
        };
        if line > 0 && !name.starts_with(OWN_CHUNKS) {
            return format!("{name}:{line}");
        }
        level += 1;
    }
}

/// The watchdog's thread; ends when no interpreter is left.
fn look_at_all() {
    let mut seen: Vec<Seen> = Vec::new();
    let mut quiet = 0;
    loop {
        std::thread::sleep(if quiet < QUIET_LOOKS {
            LOOK_EVERY
        } else {
            LOOK_WHEN_QUIET
        });
        let guards: Vec<Arc<Guard>> = {
            let mut watched = lock(&GUARDS);
            watched.guards.retain(|guard| guard.strong_count() > 0);
            if watched.guards.is_empty() {
                watched.is_running = false;
                return;
            }
            watched.guards.iter().filter_map(Weak::upgrade).collect()
        };
        quiet += 1;
        let now = Instant::now();
        let last = std::mem::take(&mut seen);
        for guard in guards {
            let call = guard.call.load(Ordering::Acquire);
            let at = Arc::as_ptr(&guard);
            let before = last.iter().find(|seen| seen.guard == at);
            if before.is_none_or(|before| before.call != call) || call % 2 == 1 {
                quiet = 0;
            }
            let since = before
                .filter(|before| before.call == call)
                .map_or(now, |before| before.since);
            seen.push(Seen {
                guard: at,
                call,
                since,
            });
            let budget = Duration::from_nanos(guard.budget_ns.load(Ordering::Relaxed));
            if call % 2 == 1 && now - since >= budget {
                guard.interrupt();
            }
        }
    }
}

/// What the last examination of a guard found.
struct Seen {
    guard: *const Guard,
    call: u64,
    since: Instant,
}

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Number of examinations without a call after which the thread sleeps longer. A call that does not
/// return then runs longer before it is stopped.
const QUIET_LOOKS: u32 = 50;
const LOOK_WHEN_QUIET: Duration = Duration::from_millis(200);
