//! Tests of the channel. The models for loom are a package of their own, `../model`.

mod duplex;
mod hostile;
mod model;
mod ring;
