//! What a bench has one of its systems measure: an order goes in as JSON, each result comes out as
//! a line of JSON. So the client of a measurement can be in any system: a namespace or a VM.

use std::net::IpAddr;
use std::time::Duration;

use carina_api::{AppName, DifName};
use carina_client::{FlowSpec, Node};
use carina_measure::traffic::{Arrivals, Sizes};
use carina_measure::trial::client::{Trial, TrialClient};
use carina_measure::trial::job::{Direction, Job, Via};
use carina_measure::trial::target::Target;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// A flow: in which DIF, and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The DIF.
    pub dif: DifName,
    /// The specification.
    pub spec: FlowSpec,
}

/// What carries the SDUs of a system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// A flow.
    Flow(Way),
    /// UDP.
    Udp {
        /// Address of the server.
        server: IpAddr,
        /// Address of the client.
        client: IpAddr,
    },
    /// TCP to an address of the server.
    Tcp(IpAddr),
}

/// A system of a bench.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Its name in the results.
    pub name: String,
    /// What carries its SDUs.
    pub means: Means,
    /// The longest SDU that it can carry, in bytes.
    pub sdu_max: u64,
}

/// What is to be measured, from one client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The server.
    pub peer: AppName,
    /// The flow of the control channel.
    pub control: Way,
    /// The systems, measured one right after the other.
    pub systems: Vec<System>,
    /// SDU sizes in bytes.
    pub sizes: Vec<u64>,
    /// Who sends.
    pub direction: Direction,
    /// How long each measurement sends, in nanoseconds; 0 for no limit.
    pub time_ns: u64,
    /// How many SDUs each sends; 0 for no limit.
    pub count: u64,
    /// Whether the receiver compares every byte.
    pub verify: bool,
}

/// One result: what was seen, or why nothing was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the system.
    pub system: String,
    /// SDU size in bytes.
    pub sdu: u64,
    /// What both sides saw.
    pub trial: Option<Trial>,
    /// Why it failed.
    pub failure: Option<String>,
}

impl Order {
    /// Carries the order out; `tell` hears each result.
    ///
    /// # Errors
    /// The server cannot be reached at all, or `tell` fails.
    pub fn carry_out(
        &self,
        node: &Node,
        tell: &mut dyn FnMut(&Finding) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut client = TrialClient::open(self.target(node, &self.control))?;
        for sdu in &self.sizes {
            for system in self.systems.iter().filter(|system| *sdu <= system.sdu_max) {
                let outcome = self.measure(node, &mut client, system, *sdu);
                let failure = outcome.as_ref().err().map(ToString::to_string);
                let broken = failure.is_some();
                tell(&Finding {
                    system: system.name.clone(),
                    sdu: *sdu,
                    trial: outcome.ok(),
                    failure,
                })?;
                if broken {
                    // Its two ends may be in different states of the conversation.
                    client = TrialClient::open(self.target(node, &self.control))?;
                }
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        node: &Node,
        client: &mut TrialClient,
        system: &System,
        sdu: u64,
    ) -> Result<Trial, Failure> {
        let via = match &system.means {
            Means::Flow(way) => {
                client.carry_over(Some(self.target(node, way)));
                Via::Flow {
                    ticket: client.ticket(),
                }
            }
            Means::Udp { server, client } => Via::Udp {
                server: *server,
                client: *client,
                through: None,
            },
            Means::Tcp(server) => Via::Tcp { server: *server },
        };
        let job = Job {
            direction: self.direction,
            via,
            sizes: Sizes::Fixed(sdu),
            rate: None,
            arrivals: Arrivals::Constant,
            duration_ns: self.time_ns,
            count: self.count,
            seed: 1,
            verify: self.verify,
            interval_ns: 0,
            pin: None,
        };
        Ok(client.run(&job, &mut |_| {})?)
    }

    fn target(&self, node: &Node, way: &Way) -> Target {
        Target {
            node: node.clone(),
            local: AppName::new("carina.bench").expect("the name is short plain text"),
            remote: self.peer.clone(),
            dif: Some(way.dif.clone()),
            spec: way.spec,
            wait: Duration::ZERO,
        }
    }
}
