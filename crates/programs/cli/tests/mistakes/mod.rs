//! What operators do wrong, and what goes wrong around them: each mistake with the exit code and
//! the words of its answer, and with what must not happen because of it.

// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

mod applying;
mod benches;
mod logs;
mod waits;
