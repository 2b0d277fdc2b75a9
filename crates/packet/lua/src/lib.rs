//! Apps of frames written in Lua, run by LuaJIT.
//!
//! ```text
//!   graph's file --read--> LuaConfig --build--> LuaApp ----- calls: push, pull, tick
//!                                                 |  block of places: numbers, addresses, lengths
//!   nat.lua ----------------------------------> State: interpreter, prelude, sandbox, limits
//!                                                 ^
//!                                            watchdog: one thread for all
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`config`] | the configuration in a graph file |
//! | [`app`] | the app: passes frames from links to the script, and back |
//! | `block` | the memory that app and script share |
//! | `state`, `syntax` | the interpreter; a syntax check |
//! | `started` | a script that was started on a thread other than its worker's |
//! | `watchdog` | interrupts calls that do not return |
//! | `failure` | describes errors in one line |
//!
//! A script handles a burst without calling into Rust. The block describes the waiting frames, and
//! the script records in it what it does with them. The frames stay on their links during the call.
//! After the call, the app takes the received frames off their links and puts the sent ones on the
//! outputs. All other frames stay where they were. A script that fails therefore loses only the
//! frames that it had received in that call.
//!
//! Unsafe code is in `state` (an interpreter with `ffi`, for the prelude), `started` (an
//! interpreter moves to another thread) and `watchdog` (a hook).

#![deny(unsafe_code)]

pub mod app;
mod block;
pub mod config;
mod failure;
mod started;
mod state;
mod syntax;
mod watchdog;

use carina_graph::graph_file::Kind;

use crate::config::LuaConfig;

/// The kind of app in this crate, to be used in graph files.
pub const KIND: Kind = Kind::of::<LuaConfig>().with_files(&["file"]);
