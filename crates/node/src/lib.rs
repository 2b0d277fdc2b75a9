//! The IPC Manager.
#![forbid(unsafe_code)]

pub mod config;
mod glob;
mod http;
mod journal;
mod queries;
mod rules;
mod rundir;
#[cfg(test)]
mod testing;
