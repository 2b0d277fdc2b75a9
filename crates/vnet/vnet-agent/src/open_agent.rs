//! Connects the agent of a host with the protocol of its PIP.

use std::sync::Arc;
use std::time::Duration;

use carina_api::ErrorBody;
use carina_vnet::message::{FromAgent, ToAgent};
use carina_vnet_host::Agent;
use carina_vnet_roles::agent::{HostError, Hosting};
use carina_vnet_roles::inside::{Answer, NetworkRequest};

use crate::hosting::Inside;

/// An agent that carries out its PIP's orders and operators' requests.
#[derive(Debug)]
pub struct OpenAgent {
    /// Makes and removes the host's parts of networks.
    pub agent: Arc<Agent>,
    /// Carries out operators' requests about nodes.
    pub inside: Inside,
}

impl Hosting for OpenAgent {
    fn tell(&self, message: &ToAgent) -> Result<(), HostError> {
        Ok(self.agent.tell(message)?)
    }

    fn say(&self) -> FromAgent {
        self.agent.say()
    }

    fn try_again(&self) -> Result<(), HostError> {
        Ok(self.agent.try_refused_again()?)
    }

    fn changed(&self, seen: u64, wait: Duration) -> u64 {
        self.agent.changed(seen, wait)
    }

    fn inside(&self, wanted: &NetworkRequest) -> Result<Answer, ErrorBody> {
        self.inside.answer(&self.agent, wanted)
    }
}
