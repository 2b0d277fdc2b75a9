//! Entry points for fuzzing a whole IPC process, one for each dialect.

pub mod irati;
pub mod rlite;
mod script;
