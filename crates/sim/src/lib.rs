//! Networks of whole IPCPs on a virtual clock.

#![forbid(unsafe_code)]
