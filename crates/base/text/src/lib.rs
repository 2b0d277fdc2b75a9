//! Formatting of text for people, and reading of files that people write.
//!
//! | module | content |
//! |---|---|
//! | [`drawing`] | drawings of networks, as SVG |
//! | [`table`] | tables of results, with short numbers |
//! | [`duration`] | durations on a command line |
//! | [`spelling`] | suggestions for misspelt words |
//! | [`line_counter`] | line numbers of offsets in a text |
//! | [`toml`] | values as TOML |
//! | `toml_fault` | errors of TOML in words (feature `toml`) |
#![forbid(unsafe_code)]

pub mod drawing;
pub mod duration;
pub mod line_counter;
pub mod spelling;
pub mod table;
pub mod toml;
#[cfg(feature = "toml")]
pub mod toml_fault;
