//! Tests that need more than one module.

mod convergence;
mod database;
mod incremental;
mod network;
mod size;
