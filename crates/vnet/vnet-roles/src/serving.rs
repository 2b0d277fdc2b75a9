//! What a role offers to its callers: TLS with certificates on both sides, messages, and the verbs
//! of operators and delegates.

pub mod asks;
pub mod drains;
pub mod entrance;
pub mod event_log;
mod executing;
pub mod listening;
pub mod messages;
pub mod moves;
pub mod operations;
pub mod page;
pub mod pip_handlers;
pub mod provider;
pub mod rights;
mod sources;
pub mod verbs;
pub mod watching;
