//! One connection: data transfer and data transfer control by delta-t, and delimiting.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
