//! Tests of whole IPCPs of rlite's and IRATI's dialects, wired to one another on a virtual clock.

mod connect_reader;
mod irati;
mod rlite;
