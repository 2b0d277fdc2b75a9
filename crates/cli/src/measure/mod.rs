//! Arithmetic of measurements: summaries, traffic shapes, sequence accounting. No I/O here.

pub mod duration;
pub mod random;
pub mod sequence;
pub mod summary;
pub mod traffic;
