//! The configuration of a UDP shim and the builder of its app.

use std::collections::VecDeque;
use std::net::SocketAddr;

use carina_api::AppName;
use carina_dataplane::{AppContext, BuildError, IpcpBuilder, QosOffered};
use carina_engine::App;
use carina_netdev::{DatagramSocket, FaultPlan};
use carina_time::Instant;

use super::frame::SDU_HEADER_BYTES;
use super::native::Native;
use super::rlite::Rlite;
use super::sockets::Sockets;
use super::{Framing, Udp};
use crate::address_resolver::AddressResolver;
use crate::error::ShimError;
use crate::flow_table::FlowTable;
use crate::retries::Retries;

/// How the UDP shim puts SDUs into datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpFraming {
    /// Carina's own framing: with flow numbers, and flows allocated by name.
    Native,
    /// The framing of rlite and IRATI: a datagram is an SDU, and a pair of IP addresses and ports
    /// identifies the flow.
    Rlite,
}

/// Configuration of a shim over UDP: addresses, framing and faults.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The local address and port on which the shim receives.
    pub listen: SocketAddr,
    /// How SDUs are framed in datagrams.
    pub framing: UdpFraming,
    /// Addresses of peer applications, as `HOST` or `HOST:PORT` (default port: 3359). The shim
    /// looks up other names in `/etc/hosts` and DNS.
    pub peers: Vec<(AppName, String)>,
    /// Longest SDU that the shim carries, in bytes.
    pub sdu_max: usize,
    /// How long the shim repeats a flow request without an answer, in ns.
    pub timeout_ns: u64,
    /// Faults that the fault layer applies to everything that the shim sends; `None` for none.
    pub fault: Option<FaultPlan>,
}

impl UdpConfig {
    /// Makes the configuration of a shim that listens on `listen`, with defaults for the rest.
    #[must_use]
    pub fn new(listen: SocketAddr, framing: UdpFraming) -> UdpConfig {
        UdpConfig {
            listen,
            framing,
            peers: Vec::new(),
            sdu_max: UDP_SDU_MAX_DEFAULT,
            timeout_ns: 5_000_000_000,
            fault: None,
        }
    }

    /// Checks the values and their combination. Opens no sockets.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn check(&self) -> Result<(), ShimError> {
        let limit = carina_netdev::DATAGRAM_BYTES_MAX - self.header_bytes();
        if !(64..=limit).contains(&self.sdu_max) {
            return Err(ShimError::SduMax {
                bytes: self.sdu_max,
                limit,
            });
        }
        if let Some(plan) = &self.fault {
            plan.check()?;
        }
        Ok(())
    }

    /// Bytes of the header in front of an SDU.
    fn header_bytes(&self) -> usize {
        match self.framing {
            UdpFraming::Native => SDU_HEADER_BYTES,
            UdpFraming::Rlite => 0,
        }
    }

    /// Opens the socket. Returns the builder of the shim's app for the data plane, and the QoS that
    /// the shim's flows offer.
    ///
    /// # Errors
    /// As for [`UdpConfig::check`]; or the address cannot be used.
    pub fn open(self) -> Result<(Box<dyn IpcpBuilder>, QosOffered), ShimError> {
        self.check()?;
        // Control datagrams contain two names. They must fit, whatever the longest SDU is.
        let bytes_max = (self.sdu_max + self.header_bytes()).max(CONTROL_BYTES_MAX);
        let socket = DatagramSocket::bind(self.listen, bytes_max)?;
        let resolver = AddressResolver::open(self.peers.clone(), UDP_PORT)
            .map_err(ShimError::system("starting the address resolver"))?;
        let orderly = |plan: &FaultPlan| plan.reorder == 0.0 && plan.jitter_ns == 0;
        // The Internet reorders packets, so the shim promises no order; see
        // docs/explanation/shims.md.
        let offered = QosOffered {
            in_order: self.listen.ip().is_loopback() && self.fault.as_ref().is_none_or(orderly),
            ..QosOffered::datagrams(self.sdu_max)
        };
        Ok((
            Box::new(UdpBuilder {
                config: self,
                socket,
                resolver,
            }),
            offered,
        ))
    }
}

struct UdpBuilder {
    config: UdpConfig,
    socket: DatagramSocket,
    resolver: AddressResolver,
}

impl IpcpBuilder for UdpBuilder {
    fn label(&self) -> String {
        format!("udp {}", self.config.listen)
    }

    fn enforces_credit(&self) -> bool {
        false
    }

    fn build(self: Box<Self>, context: AppContext) -> Result<Box<dyn App>, BuildError> {
        let address = self.socket.local_address();
        let address = address.map_err(ShimError::system("the UDP socket"))?;
        let plan = self.config.fault.filter(|plan| !plan.is_harmless());
        Ok(Box::new(Udp {
            name: format!("ipcp-{}", context.ipcp),
            label: address.to_string(),
            flows: FlowTable::new(context),
            sockets: Sockets::new(self.socket, plan)
                .map_err(ShimError::system("opening the UDP sockets"))?,
            resolver: self.resolver,
            retries: Retries::new(carina_time::Duration::from_nanos(self.config.timeout_ns)),
            framing: match self.config.framing {
                UdpFraming::Native => Framing::Native(Native::new()),
                UdpFraming::Rlite => Framing::Rlite(Rlite::default()),
            },
            sdu_max: self.config.sdu_max,
            is_announced: false,
            is_removed: false,
            now: Instant::ZERO,
            stalled: VecDeque::new(),
            paced: VecDeque::new(),
        }))
    }
}

/// The UDP port of RINA over UDP.
pub(crate) const UDP_PORT: u16 = 3359;

/// Default longest SDU, in bytes: what fits into an Ethernet frame with IPv6 and UDP, and what
/// rlite accepts.
const UDP_SDU_MAX_DEFAULT: usize = 1452;

/// Bytes of a request with two names of 255 bytes.
const CONTROL_BYTES_MAX: usize = 4 + 2 + 2 * 256;
