//! Roles of virtual networks as processes: what their machines in `carina_vnet` need of the
//! operating system.
//!
//! So far these are stores: [`sqlite::SqliteStore`] keeps the state of roles on one machine,
//! [`etcd::EtcdStore`] that of roles that several management nodes share.
#![forbid(unsafe_code)]

pub mod etcd;
pub mod sqlite;
