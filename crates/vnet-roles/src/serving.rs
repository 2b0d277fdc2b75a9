//! What those who call a role get: TLS with certificates on both sides, messages, and the verbs of
//! operators.

pub mod entrance;
pub mod listening;
pub mod messages;
pub mod operations;
pub mod verbs;
