//! Graphs of apps: read from a file, run, traced and drawn.
//!
//! ```text
//!   file (TOML) --graph_file--> Graph --runner--> workers of the engine
//!                                 |                  |
//!                              picture             trace --> frames on a link, as pcapng
//! ```
//!
//! [`graph_file`] knows the stock apps (`carina_apps`) by their kinds. Other crates add kinds of
//! their own: ports, and scripts in Lua.
#![forbid(unsafe_code)]

pub mod graph_file;
pub mod picture;
pub mod runner;
pub mod trace;
