//! Tests that involve several modules.

mod convergence;
mod database;
mod incremental;
mod network;
mod size;
