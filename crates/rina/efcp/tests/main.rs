//! Tests of EFCP connections and delimiting.

mod buffers;
mod delimiting;
mod hostile;
mod simulation;
