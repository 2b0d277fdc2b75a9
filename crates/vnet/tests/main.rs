//! What a document may say, in each of its forms.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod behind;
mod faults;
mod forms;
mod parts;
mod roles;
mod store;
