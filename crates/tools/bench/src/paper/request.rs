//! Requests to a client in another system (a namespace or a VM) to measure. The client reads a
//! request as JSON, and prints each measurement as a line of JSON.

use std::net::IpAddr;
use std::time::Duration;

use carina_api::{AppName, DifName};
use carina_client::{FlowSpec, Node};
use carina_measure::traffic::{Arrivals, Sizes};
use carina_measure::trial::client::Trial;
use carina_measure::trial::job::{Direction, Job, Via};
use carina_measure::trial::target::Target;
use serde::{Deserialize, Serialize};

use crate::client::{BESIDE, Client};
use crate::error::{Error, Result};

/// How a flow is requested: in which DIF, and with which flow specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowTarget {
    /// The DIF over which the flow is requested.
    pub dif: DifName,
    /// The flow specification of the request.
    pub spec: FlowSpec,
}

/// The transport that carries the SDUs of a measured system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportSpec {
    /// A flow of a DIF.
    Flow(FlowTarget),
    /// UDP datagrams of the kernel.
    Udp {
        /// Address of the server.
        server: IpAddr,
        /// Address of the client.
        client: IpAddr,
    },
    /// TCP to an address of the server.
    Tcp(IpAddr),
}

/// A system that a benchmark measures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Name of the system in the results.
    pub name: String,
    /// The transport that carries the SDUs of this system.
    pub transport: TransportSpec,
    /// Longest SDU that it can carry, in bytes.
    pub sdu_max: u64,
}

/// The measurements that a client has to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Application name of the server.
    pub peer: AppName,
    /// The flow by which client and server coordinate the measurements.
    pub control: FlowTarget,
    /// The systems, measured one right after the other.
    pub systems: Vec<System>,
    /// SDU sizes to measure, in bytes.
    pub sizes: Vec<u64>,
    /// Direction in which SDUs are sent.
    pub direction: Direction,
    /// Duration of each measurement in nanoseconds; 0 for no limit.
    pub time_ns: u64,
    /// Number of SDUs of each measurement; 0 for no limit.
    pub count: u64,
    /// Whether the receiver compares every received byte with the byte that was sent.
    pub verify: bool,
}

/// The result of one measurement: the reports of both sides, or the reason why it failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the measured system.
    pub system: String,
    /// SDU size in bytes.
    pub sdu: u64,
    /// The reports of both sides; `None` if the measurement failed.
    pub trial: Option<Trial>,
    /// Why the measurement failed, as text; `None` if it did not fail.
    pub failure: Option<String>,
}

impl Request {
    /// Makes the measurements, and calls `report` with each of them.
    ///
    /// # Errors
    /// The server cannot be reached at all, or `report` fails.
    pub fn execute<E: From<Error>>(
        &self,
        node: &Node,
        report: &mut dyn FnMut(&Measurement) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut client = Client::open(self.target(node, &self.control))?;
        for sdu in &self.sizes {
            for system in self.systems.iter().filter(|system| *sdu <= system.sdu_max) {
                let outcome = self.measure(node, &mut client, system, *sdu);
                report(&Measurement {
                    system: system.name.clone(),
                    sdu: *sdu,
                    failure: outcome.as_ref().err().map(ToString::to_string),
                    trial: outcome.ok(),
                })?;
            }
        }
        Ok(())
    }

    /// Time limit of the whole request, if every measurement takes until its deadline.
    pub fn limit(&self) -> Duration {
        let measurements = (self.sizes.len() * self.systems.len()).max(1);
        let each = Duration::from_nanos(self.time_ns) + BESIDE;
        each.saturating_mul(measurements as u32) + BESIDE
    }

    fn measure(
        &self,
        node: &Node,
        client: &mut Client,
        system: &System,
        sdu: u64,
    ) -> Result<Trial> {
        let via = match &system.transport {
            TransportSpec::Flow(target) => {
                client.carry_over(Some(self.target(node, target)))?;
                Via::Flow {
                    ticket: client.ticket()?,
                }
            }
            TransportSpec::Udp { server, client } => Via::Udp {
                server: *server,
                client: *client,
                through: None,
            },
            TransportSpec::Tcp(server) => Via::Tcp { server: *server },
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
        client.run(job)
    }

    fn target(&self, node: &Node, target: &FlowTarget) -> Target {
        Target {
            node: node.clone(),
            local: AppName::new("carina.bench").expect("the name is short plain text"),
            remote: self.peer.clone(),
            dif: Some(target.dif.clone()),
            spec: target.spec,
            wait: REACH,
        }
    }
}

/// How long the server may take until it can be reached again after a failed measurement.
const REACH: Duration = Duration::from_secs(20);
