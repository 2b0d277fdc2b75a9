//! Tests of operators' mistakes and of failures around them: each with the exit code and the error
//! text, and with what must not happen because of it.

// Helper functions of tests may panic, as tests may.
#![allow(clippy::unwrap_used)]

mod applying;
mod benches;
mod logs;
mod waits;
