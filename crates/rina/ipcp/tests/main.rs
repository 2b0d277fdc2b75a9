//! Tests of whole IPC processes, wired to one another on a virtual clock.

mod data_transfer;
mod irati;
mod layer_management;
mod rlite;
