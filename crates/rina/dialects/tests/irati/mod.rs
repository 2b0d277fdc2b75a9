//! Whole IPCPs of IRATI's dialect: with one another, against a capture, and against hostile input.

mod directory;
mod enrollment;
mod flows;
mod hostile;
mod late;
mod net;
mod replay;
mod to_itself;
mod tracing;
