//! Tests networks on this host, and what they leave behind.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod access;
mod addressed;
mod bridges;
mod browser;
mod checked;
mod driver;
mod flapping;
mod half_done;
mod hosts;
mod impaired;
mod keeping;
mod kernel_path;
mod looking;
mod machines;
mod map;
mod namespaces;
mod network;
mod page;
mod prepared;
mod rates;
mod segment;
mod socket;
mod streams;
mod switching;
mod waiting;
