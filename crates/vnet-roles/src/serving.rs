//! What those who call a role get: TLS with certificates on both sides, messages, and the verbs of
//! operators and delegates.

pub mod asks;
pub mod entrance;
pub mod event_log;
pub mod listening;
pub mod messages;
pub mod operations;
pub mod page;
pub mod provider;
pub mod rights;
pub mod verbs;
pub mod watching;
