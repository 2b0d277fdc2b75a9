//! Fuzz entry points: a whole IPCP, for each dialect.

pub mod irati;
pub mod rlite;
mod script;
