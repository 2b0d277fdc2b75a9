//! Measurement of flows: the traffic that is generated, the transports that carry it, the loops
//! that send and receive it on two systems, and the statistics and figures of the result.
//!
//! | module | content |
//! |---|---|
//! | [`traffic`] | sizes and rates of generated traffic, and their text form on a command line |
//! | [`transport`] | a flow, and what it is compared with: UDP, TCP, Unix sockets, bare rings |
//! | [`trial`] | one measurement between a client and a server |
//! | [`sequence`], [`summary`] | loss and reordering; mean, percentiles, confidence |
//! | [`ratio`] | two systems measured in pairs: median and interval of their ratio |
//! | [`results`], [`figure`] | results of benchmarks as rows and as pictures |
#![forbid(unsafe_code)]

pub mod crowd;
pub mod figure;
pub mod random;
pub mod ratio;
pub mod results;
pub mod sequence;
pub mod summary;
pub mod traffic;
pub mod transport;
pub mod trial;
