//! Apps of frames written in Lua, run by LuaJIT.
//!
//! ```text
//!   graph's file --read--> LuaConfig --build--> LuaApp ----- visit: push, pull, tick
//!                                                 |  block of places: numbers, addresses, lengths
//!   nat.lua ----------------------------------> State: interpreter, prelude, sandbox, limits
//!                                                 ^
//!                                            watchdog: one thread for all
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`config`] | what stands in a graph's file |
//! | [`app`] | the app: frames from links to the script and back |
//! | `block` | the memory that both share |
//! | `state`, `syntax` | the interpreter; whether a text is Lua |
//! | `started` | a script that was started on another thread than its worker's |
//! | `watchdog` | ends calls that do not return |
//! | `failure` | errors in one line |
//!
//! A script handles bursts without a call into Rust: the places of the frames that wait stand in
//! the block, and so does what the script does with them. The frames are on their links meanwhile.
//! When the call has ended, those that were received are taken off, and those that were sent are
//! put on; all others are where they were. So a script that fails loses what it had in hand, and
//! nothing else.
//!
//! Unsafe code is in `state` (an interpreter with `ffi`, for the prelude), `started` (one that goes
//! to another thread) and `watchdog` (a hook).

#![deny(unsafe_code)]

pub mod app;
mod block;
pub mod config;
mod failure;
mod started;
mod state;
mod syntax;
mod watchdog;

use carina_apps::graph_file::Kind;

use crate::config::LuaConfig;

/// The kind of app of this crate, for files of graphs.
pub const KIND: Kind = Kind::of::<LuaConfig>().with_files(&["file"]);
