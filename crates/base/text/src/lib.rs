//! Text for people, and of files that people write.
//!
//! | module | content |
//! |---|---|
//! | [`table`] | tables of results, with short numbers |
//! | [`duration`] | durations on a command line |
//! | [`spelling`] | the word that a misspelt one stands for |
//! | [`line_counter`] | lines of places in a text |
//! | [`toml`] | values as TOML |
//! | `toml_fault` | errors of TOML in words (feature `toml`) |
#![forbid(unsafe_code)]
#![deny(unreachable_pub)]

pub mod duration;
pub mod line_counter;
pub mod spelling;
pub mod table;
pub mod toml;
#[cfg(feature = "toml")]
pub mod toml_fault;
