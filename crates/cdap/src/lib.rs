//! CDAP messages and the CDAP connection machine.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
