//! Lets operators stop, start and restart nodes, and take links down and up.

use std::time::{Duration, Instant};

use carina_vnet::report::{NodeSwitch, VnetReport, VnetState};

use super::Agent;
use crate::error::{Error, Result};

impl Agent {
    /// Stops a node, or begins to start or restart it.
    ///
    /// # Errors
    /// The network or the node does not exist, or the agent cannot end the node.
    pub fn switch_node(&self, name: &str, node: &str, what: NodeSwitch) -> Result<VnetReport> {
        let began = Instant::now();
        let network = self.network(name)?;
        let vnet = network.vnet()?;
        match what {
            NodeSwitch::Stop => vnet.stop_node(node)?,
            NodeSwitch::Start => vnet.start_node(node)?,
            NodeSwitch::Restart => vnet.restart_node(node)?,
        }
        drop(vnet);
        if what != NodeSwitch::Stop {
            network.make_again(began)?;
        }
        Ok(network.report())
    }

    /// Takes a link down, or begins to take it up and to probe it.
    ///
    /// # Errors
    /// The network or the link does not exist, or the agent cannot change its ports.
    pub fn switch_link(&self, name: &str, link: u32, is_up: bool) -> Result<VnetReport> {
        let began = Instant::now();
        let network = self.network(name)?;
        network.vnet()?.switch_link(link, is_up)?;
        if is_up {
            network.make_again(began)?;
        }
        Ok(network.report())
    }

    /// Like [`Agent::switch_link`], for the link at an interface of a node.
    ///
    /// # Errors
    /// As for [`Agent::switch_link`]; also if the node has no such interface.
    pub fn switch_link_at(
        &self,
        name: &str,
        [node, interface]: [&str; 2],
        is_up: bool,
    ) -> Result<VnetReport> {
        let (link, _) = self.end(name, [node, interface])?;
        self.switch_link(name, link, is_up)
    }

    /// Waits until a network has finished changing: it is ready or degraded.
    ///
    /// # Errors
    /// [`Error::NotReady`] with the reasons if the change has failed. [`Error::Timeout`] if the
    /// network still changes after `limit`. Or there is no such network.
    pub fn wait_until_settled(&self, name: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let report = self.report(name)?;
            match report.state {
                VnetState::Ready | VnetState::Degraded => return Ok(()),
                VnetState::Failed => return Err(Error::NotReady(report.obstacles.join("; "))),
                VnetState::Changing if Instant::now() >= deadline => {
                    let what = format!("network {name} did not become ready");
                    return Err(Error::Timeout { what, limit });
                }
                VnetState::Changing => std::thread::sleep(LOOK),
            }
        }
    }
}

const LOOK: Duration = Duration::from_millis(20);
