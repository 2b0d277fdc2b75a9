//! Link-state database, incremental SPF, equal-cost multipath, loop-free alternates.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
