//! Programs of the data plane: graphs of apps that are made from a few words instead of a file.
//!
//! | module | content |
//! |---|---|
//! | [`port`] | ports as they stand on a command line |
//! | [`destination`] | prefixes of either version of IP |
//! | [`blast`] | a load generator: packets at a rate, what is lost, and how long they take |
//! | [`forward`] | a forwarder between ports: by wire, by MAC address, by route |
//! | [`traffic`] | the NFV process: ports of guests with filters, rates and tunnels |
//!
//! `carina_cli` has the commands; what they say and print is there, what they run is here.
#![forbid(unsafe_code)]

pub mod blast;
pub mod destination;
pub mod forward;
pub mod port;
pub mod traffic;

use carina_apps::graph_file::Kind;

/// The kinds of apps that graphs of these programs may have beside the stock ones.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    carina_ports::KINDS.to_vec()
}
