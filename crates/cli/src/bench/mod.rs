//! The benches: Carina beside other systems, side by side, interleaved.

pub mod flows;
pub mod guest_network;
pub mod household;
pub mod hv;
pub mod lab;
pub mod local;
pub mod paper;
pub mod placement;
pub mod plan;
