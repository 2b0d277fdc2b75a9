//! Access points of virtual networks: where end users join who have only IP connectivity to the
//! provider.
#![forbid(unsafe_code)]

pub mod access_app;
pub mod access_point;
mod bucket;
pub mod control;
pub mod desk;
pub mod discard;
pub mod join;
pub mod key;
pub mod passage;
pub mod refusal;
pub mod register;
mod routes;
pub mod token;
mod tunnel;
pub mod user_app;
pub mod user_end;

pub use refusal::{Refusal, Refused};
