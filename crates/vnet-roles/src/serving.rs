//! What those who call a role get: TLS with certificates on both sides, messages, and the verbs of
//! operators.

pub mod asks;
pub mod entrance;
pub mod listening;
pub mod messages;
pub mod operations;
pub mod page;
pub mod verbs;
