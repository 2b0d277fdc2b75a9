//! Compares several systems in interleaved runs: each case, each size, each system.

use std::net::IpAddr;
use std::path::PathBuf;

use carina_api::DifName;
use carina_measure::results::{Metric, Samples};
use carina_measure::traffic::{Arrivals, Rate, Sizes};
use carina_measure::transport::bare::{BARE_SDU_MAX, BarePlace, BareTransport};
use carina_measure::transport::grants::GRANTED_SDU_MAX;
use carina_measure::transport::udp::UDP_SDU_MAX;
use carina_measure::trial::client::Trial;
use carina_measure::trial::job::{Direction, Job, Via};

use crate::Progress;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::vchan::{VCHAN_SDU_MAX, VchanClient};

/// A note for readers of the results: what goodput counts, and `more` about the same measurements.
pub(crate) fn goodput_note(more: &str) -> String {
    format!("goodput counts bytes that the receiving application got; {more}")
}

/// A system that a benchmark measures: its name, and what carries its SDUs.
#[derive(Debug, Clone)]
pub struct System {
    /// Name of the compared system in the results.
    pub name: &'static str,
    /// The transport that carries the SDUs of this system.
    pub transport: TransportSpec,
}

/// The transport that carries the SDUs of a measured system.
#[derive(Debug, Clone)]
pub enum TransportSpec {
    /// A flow over this DIF; with `None`, over the first DIF that knows the server.
    Flow(Option<DifName>),
    /// UDP between an address of the server and one of the client.
    Udp {
        /// IP address of the server, which `carina bench` starts at the other end.
        server: IpAddr,
        /// IP address of the client, which asks for the measurement.
        client: IpAddr,
        /// Address at which the server sees the client, if an address translator is between them;
        /// `None` without one.
        through: Option<IpAddr>,
    },
    /// TCP to the server at this address.
    Tcp(IpAddr),
    /// A Unix socket with this path.
    Unix(PathBuf),
    /// A stream of AF_VSOCK to a port of the server's system, which is a guest.
    Vsock {
        /// Path of the Unix socket of the guest's vsock device.
        device: PathBuf,
        /// Port of the guest.
        port: u32,
        /// The Unix socket of the server, if another program takes connections at the port and
        /// relays them.
        relayed_to: Option<PathBuf>,
    },
    /// Two bare rings in shared memory.
    Bare {
        /// Place of the rings in the client's system.
        client: BarePlace,
        /// Place of the rings in the server's system.
        server: BarePlace,
    },
    /// Two bare rings in memory that the server's domain of Xen grants to Dom0, the client's.
    Grants {
        /// Number of the server's domain.
        domain: u16,
    },
    /// A stream of libxenvchan, measured by a program of its own.
    Vchan(VchanClient),
}

/// The systems whose two processes are pinned to CPUs 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// No processes are pinned.
    Never,
    /// Only the processes that measure the limit (bare rings in shared memory).
    Limit,
    /// The limit and Carina, which both share memory between the two CPUs.
    Shared,
    /// The processes of all systems. The kernel's transports are slower when pinned.
    All,
}

impl Pin {
    fn applies(self, transport: &TransportSpec) -> bool {
        match self {
            Self::Never => false,
            Self::Limit => matches!(transport, TransportSpec::Bare { .. }),
            Self::Shared => matches!(
                transport,
                TransportSpec::Bare { .. } | TransportSpec::Flow(_)
            ),
            Self::All => true,
        }
    }
}

/// A case of a benchmark: its name in the results, and the side that sends.
pub type Case = (&'static str, Direction);

/// Which systems to compare, in which cases, at which SDU sizes, and how often.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The cases in which all systems are measured.
    pub cases: Vec<Case>,
    /// The systems, measured one right after the other.
    pub systems: Vec<System>,
    /// SDU sizes in bytes for the cases that measure goodput.
    pub sizes: Vec<u64>,
    /// SDU sizes in bytes for the echo.
    pub echo_sizes: Vec<u64>,
    /// Number of times that each system is measured, per case and SDU size.
    pub runs: usize,
    /// Duration of a single measurement in nanoseconds.
    pub time_ns: u64,
    /// The systems whose processes are pinned.
    pub pin: Pin,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

impl Comparison {
    /// Makes all measurements, and returns when they have ended. Runs are interleaved, so that a
    /// disturbance of the machine affects all systems alike. Returns the samples, and a text for
    /// each failed measurement.
    ///
    /// # Errors
    /// [`FAILURES_MAX`](crate::FAILURES_MAX) measurements in succession failed.
    pub fn run(&self, client: &mut Client) -> Result<(Samples, Vec<String>)> {
        let mut samples = Samples::default();
        let mut failures = Failures::new(self.progress);
        for run in 1..=self.runs {
            for (case, direction) in &self.cases {
                self.progress
                    .step(format!("run {run} of {}: {case}", self.runs));
                let echo = *direction == Direction::Echo;
                for sdu in if echo { &self.echo_sizes } else { &self.sizes } {
                    for system in self.systems.iter().filter(|system| system.carries(*sdu)) {
                        let measured = self.measure(client, *direction, system, *sdu);
                        let what = format!("run {run}, {case}");
                        if let Some(trial) = failures.note(&what, measured)? {
                            add(&mut samples, case, *sdu, system.name, &trial);
                        }
                    }
                }
            }
        }
        Ok((samples, failures.into_lines()))
    }

    fn measure(
        &self,
        client: &mut Client,
        direction: Direction,
        system: &System,
        sdu: u64,
    ) -> Result<Trial> {
        let pin = self.pin.applies(&system.transport).then_some([0, 1]);
        system.measure(client, direction, sdu, self.time_ns, pin)
    }
}

impl System {
    /// Whether the system can carry SDUs of this size.
    pub fn carries(&self, sdu: u64) -> bool {
        match self.transport {
            TransportSpec::Udp { .. } => sdu <= UDP_SDU_MAX,
            TransportSpec::Bare { .. } => sdu <= BARE_SDU_MAX,
            TransportSpec::Grants { .. } => sdu <= GRANTED_SDU_MAX,
            TransportSpec::Vchan(_) => sdu <= VCHAN_SDU_MAX,
            _ => true,
        }
    }

    /// Sends SDUs of `sdu` bytes for `time_ns` nanoseconds, as fast as possible, with the two
    /// processes pinned to the processors `pin`.
    ///
    /// # Errors
    /// Those of [`Client::run`], with the system and the size.
    pub(crate) fn measure(
        &self,
        client: &mut Client,
        direction: Direction,
        sdu: u64,
        time_ns: u64,
        pin: Option<[usize; 2]>,
    ) -> Result<Trial> {
        self.job(client, direction, sdu, time_ns, (None, pin))
    }

    /// Echoes SDUs of `sdu` bytes for `time_ns` nanoseconds at a rate.
    ///
    /// # Errors
    /// Those of [`Client::run`], with the system and the size.
    pub(crate) fn echo_at(
        &self,
        client: &mut Client,
        sdu: u64,
        time_ns: u64,
        rate: Rate,
    ) -> Result<Trial> {
        self.job(client, Direction::Echo, sdu, time_ns, (Some(rate), None))
    }

    fn job(
        &self,
        client: &mut Client,
        direction: Direction,
        sdu: u64,
        time_ns: u64,
        (rate, pin): (Option<Rate>, Option<[usize; 2]>),
    ) -> Result<Trial> {
        let case = format!("{} with SDUs of {sdu} bytes", self.name);
        if let TransportSpec::Vchan(program) = &self.transport {
            let measured = program.measure(direction, sdu, time_ns);
            return measured.map_err(|error| error.in_case(case));
        }
        let client = client.of(self.name);
        let via = self
            .via(client)
            .map_err(|error| error.in_case(case.clone()))?;
        let job = Job {
            direction,
            via,
            sizes: Sizes::Fixed(sdu),
            rate,
            arrivals: Arrivals::Constant,
            duration_ns: time_ns,
            count: 0,
            seed: 1,
            verify: false,
            interval_ns: 0,
            pin,
        };
        client.run(job).map_err(|error| error.in_case(case))
    }

    fn via(&self, client: &mut Client) -> Result<Via> {
        Ok(match &self.transport {
            TransportSpec::Flow(dif) => {
                client.carry_over_dif(dif.as_ref())?;
                Via::Flow {
                    ticket: client.ticket()?,
                }
            }
            TransportSpec::Udp {
                server,
                client,
                through,
            } => Via::Udp {
                through: *through,
                server: *server,
                client: *client,
            },
            TransportSpec::Tcp(server) => Via::Tcp { server: *server },
            TransportSpec::Unix(path) => Via::Unix { path: path.clone() },
            TransportSpec::Vsock {
                device,
                port,
                relayed_to,
            } => Via::Vsock {
                device: device.clone(),
                port: *port,
                relayed_to: relayed_to.clone(),
            },
            TransportSpec::Grants { domain } => Via::Grants {
                client: 0,
                server: *domain,
            },
            TransportSpec::Vchan(_) => {
                let what = "libxenvchan is measured by a program of its own";
                return Err(Error::Client(what.to_owned()));
            }
            TransportSpec::Bare { client, server } => {
                BareTransport::prepare(client)?;
                Via::Bare {
                    client: client.clone(),
                    server: server.clone(),
                }
            }
        })
    }
}

fn add(samples: &mut Samples, case: &str, sdu: u64, system: &str, trial: &Trial) {
    let seen = trial.receiver();
    if trial.direction == Direction::Echo {
        if let Some(rtt) = &seen.rtt_us {
            samples.add(case, sdu, system, Metric::RttUs, rtt.avg);
            samples.add(case, sdu, system, Metric::RttP50Us, rtt.p50);
            samples.add(case, sdu, system, Metric::RttP99Us, rtt.p99);
        }
    } else {
        samples.add(case, sdu, system, Metric::GoodputMbps, seen.goodput_mbps());
        samples.add(case, sdu, system, Metric::MsgsPerS, seen.sdus_per_s());
    }
    samples.add(
        case,
        sdu,
        system,
        Metric::CpuNsPerSdu,
        trial.cpu_ns_per_sdu(),
    );
}
