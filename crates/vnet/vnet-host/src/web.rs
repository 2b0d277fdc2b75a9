//! The web page of an agent: the networks of its host, and what carries them.

mod of_agent;
mod substrate;

use std::io;
use std::sync::Arc;

use carina_vnet_web::{Kind, PageServer};

use crate::agent::Agent;
use crate::server::{self, Stopped};

/// Serves the web page of an agent until its [`server::Stop`] is dropped. The histories of networks
/// begin here.
///
/// # Errors
/// The runtime cannot be made.
pub fn serve(page: PageServer, agent: Arc<Agent>, stopped: Stopped) -> io::Result<()> {
    // Dropped after the server has ended.
    let of_agent = of_agent::Service::start(agent)?;
    let api = of_agent.router();
    server::run(page.of(Kind::Networks, api), stopped)
}
