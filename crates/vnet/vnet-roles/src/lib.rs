//! Roles of virtual networks as processes: what their machines in `carina_vnet` need of the
//! operating system.
//!
//! ```text
//!  operator --verbs--> VNO --messages--> VNP --messages--> PIP <--messages-- agent
//!                       |                 |                 |
//!                     store             store             store
//! ```
//!
//! [`roles::Roles`] runs any set of them as [`configuration::Configuration`] says. Each has a
//! machine on a thread of its own ([`driver`]), a socket ([`serving`]) and conversations with those
//! that it calls ([`calling`]); calls go upward but for those of the VNP, which calls PIPs. All are
//! HTTP over TLS, over TCP or over flows of a DIF, with certificates on both sides ([`keys`]), by
//! which each knows the other's [`identity`] and rights.
//!
//! What they must not forget is in stores: [`sqlite::SqliteStore`] keeps the state of roles on one
//! machine, [`etcd::EtcdStore`] that of roles that several management nodes share.
#![forbid(unsafe_code)]

pub mod agent;
pub mod calling;
pub mod configuration;
pub mod driver;
pub mod etcd;
pub mod identity;
pub mod inside;
pub mod keys;
pub mod log;
pub mod machine;
pub mod mailbox;
pub mod numbers;
pub mod operator;
mod random;
pub mod roles;
pub mod serving;
pub mod shares;
pub mod sqlite;
pub mod stores;
pub mod wire;
