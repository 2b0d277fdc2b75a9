//! Programs of the data plane: graphs of apps that are built from a few arguments in place of a
//! file.
//!
//! | module | content |
//! |---|---|
//! | [`port`] | ports as a command line names them |
//! | [`destination`] | prefixes of either IP version |
//! | [`blast`] | a load generator: sends packets at a rate, measures loss and latency |
//! | [`forward`] | a forwarder between ports: by wire, by MAC address, by route |
//! | [`traffic`] | the NFV process: ports of guests with filters, rates and tunnels |
//!
//! The commands are in `carina_cli`, with their arguments and output; the programs that they run
//! are here.
#![forbid(unsafe_code)]

pub mod blast;
pub mod destination;
pub mod forward;
pub mod port;
pub mod traffic;

use carina_graph::graph_file::Kind;

/// The kinds of apps that graphs of these programs may use in addition to the stock kinds.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    carina_ports::KINDS.to_vec()
}
