//! Tests of the channel. The models for loom, which need `--cfg loom`, are another target.

mod duplex;
mod hostile;
mod model;
mod ring;
