//! Tests of documents in each form, of parts and of roles.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod behind;
mod beside;
mod endings;
mod far_ends;
mod faults;
mod forms;
mod moves;
mod moves_beyond;
mod parts;
mod roles;
mod store;
