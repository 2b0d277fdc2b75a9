//! Stock apps of frames.
//!
//! Each module is one app, and opens with the same block: what it does, its ports, its
//! configuration, its counters and its cost. Cost is per frame beside the move over a link.
//!
//! | app | does |
//! |---|---|
//! | [`source`] | makes frames |
//! | [`sink`] | drops frames |
//! | [`tee`] | copies each frame to all outputs |
//! | [`hop`] | swaps MAC addresses and counts a hop, as a router does |
#![forbid(unsafe_code)]

pub mod hop;
pub mod sample_packet;
pub mod sink;
pub mod source;
pub mod tee;
