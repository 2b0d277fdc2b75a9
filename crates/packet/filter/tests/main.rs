//! Tests of the compiler, and of the programs that it makes.
#![allow(missing_docs, clippy::unwrap_used)]

mod against_libpcap;
mod errors;
mod generate;
mod libpcap;
