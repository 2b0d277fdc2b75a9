//! Runs the roles of virtual networks as processes: gives the state machines of `carina_vnet`
//! threads, sockets and stores.
//!
//! ```text
//!  operator --verbs--> VNO --messages--> VNP --messages--> PIP <--messages-- agent
//!                       |                 |                 |
//!                     store             store             store
//! ```
//!
//! [`roles::Roles`] runs any set of roles, as [`configuration::Configuration`] specifies. Each role
//! has a state machine on a thread of its own ([`driver`]), a socket ([`serving`]), and connections
//! to the roles that it calls ([`calling`]). Calls go from agents to PIPs, and from VNOs to VNPs
//! and from VNPs to PIPs. All use HTTP over TLS, over TCP or over flows of a DIF, with certificates
//! on both sides ([`keys`]), which prove each other's [`identity`] and rights.
//!
//! Persistent state is in stores: [`sqlite::SqliteStore`] for roles on one machine,
//! [`etcd::EtcdStore`] for roles that several management nodes share.
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
