//! Options of the benchmarks, and the cases and sizes that they select.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use carina_bench::bindings::Toolchains;
use carina_bench::comparison::Pin;
use carina_bench::hv::{self, HvOptions};
use carina_bench::paper::Case;
use carina_bench::wrap::TcpJob;
use carina_bench::{Options, vm_and_host, xen};
use carina_measure::traffic::bytes;
use carina_text::duration::parse_ns;

use super::PROGRESS;
use crate::commands::vm::xen::Hypervisor;
use crate::failure::{Failure, usage};

/// Options of `carina bench paper`: the published measurements to repeat, the number of runs, and
/// the duration of each.
#[derive(Debug, clap::Args)]
pub(crate) struct PaperArgs {
    /// Measurements to repeat, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(super) cases: Vec<PaperCase>,
    /// Number of runs of each measurement
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Duration of each single measurement, such as 300ms
    #[arg(long, default_value = "300ms", value_parser = parse_ns)]
    pub(super) time: u64,
    /// SDU sizes in bytes, separated by commas, such as 64,1400 [default: each measurement has
    /// sizes of its own]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub(super) sizes: Vec<u64>,
    /// Directory for tables, figures (SVG) and results.json [default: none are written]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// The carina program to run in guests [default: this program]
    #[arg(long)]
    pub(super) guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench hv`: cases, systems and SDU sizes to compare.
#[derive(Debug, clap::Args)]
pub(crate) struct HvArgs {
    /// Number of runs of each measurement
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Duration of each single measurement, such as 300ms
    #[arg(long, default_value = "300ms", value_parser = parse_ns)]
    pub(super) time: u64,
    /// SDU sizes in bytes, separated by commas [default: 0 to 4000 by 250, 64, 16k, 64k, 1M]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub(super) sizes: Vec<u64>,
    /// Cases to measure, separated by commas [default: guest-to-host,host-to-guest,echo]
    #[arg(long, value_delimiter = ',')]
    pub(super) cases: Vec<String>,
    /// The hypervisor of the VM; xen: this system is Dom0, and the VM a domain
    #[arg(long, value_enum, default_value = "qemu")]
    pub(super) hypervisor: Hypervisor,
    /// Systems to compare, separated by commas; limit is a bare ring in the same memory, without
    /// Carina [default: carina,ivshmem-plain,virtqueue,vsock,vhost-device-vsock,
    /// vhost-device-vsock-socat,limit,virtio-net,e1000; with --hypervisor xen:
    /// xen,limit,netfront,libxenvchan]
    #[arg(long, value_delimiter = ',')]
    pub(super) systems: Vec<String>,
    /// Measure the round-trip time of a flow with one SDU at a time, first alone, then while this
    /// number of other flows, such as 63, send as fast as they can [default: measure the cases]
    #[arg(long, value_name = "FLOWS", conflicts_with_all = ["sizes", "cases"])]
    pub(super) crowd: Option<usize>,
    /// The carina program to run in the guest [default: carina-guest in the directory of this
    /// program if it exists, otherwise this program]
    #[arg(long)]
    pub(super) guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench local`: SDU sizes, and which processes are pinned.
#[derive(Debug, clap::Args)]
pub(crate) struct LocalArgs {
    /// Number of runs of each measurement
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Duration of each single measurement, such as 300ms
    #[arg(long, default_value = "250ms", value_parser = parse_ns)]
    pub(super) time: u64,
    /// SDU sizes in bytes, separated by commas [default: 64,512,1500,4000,65536]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub(super) sizes: Vec<u64>,
    /// Which of the compared systems have their two processes pinned to CPUs 0 and 1
    #[arg(long, value_enum, default_value = "shared")]
    pub(super) pin: PinArg,
}

/// Options that several benchmarks of frames and payloads share: cases, sizes, the number of runs,
/// and the duration of each.
#[derive(Debug, clap::Args)]
pub(crate) struct CaseArgs {
    /// Number of runs of each measurement
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Duration of each single measurement, such as 300ms
    #[arg(long, default_value = "1s", value_parser = parse_ns)]
    pub(super) time: u64,
    /// Sizes in bytes, separated by commas: lengths of frames without FCS, or of payloads, as the
    /// end of this help says [default: see the end of this help]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub(super) sizes: Vec<u64>,
    /// Cases to measure, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    pub cases: Vec<String>,
}

/// Options of `carina bench guest`: cases and sizes to measure, and the program of the guest.
#[derive(Debug, clap::Args)]
pub(crate) struct GuestArgs {
    #[command(flatten)]
    pub(super) cases: CaseArgs,
    /// The carina program to run in the guest [default: carina-guest in the directory of this
    /// program if it exists, otherwise this program]
    #[arg(long)]
    pub(super) guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench wrap`: cases and sizes to measure, and between which systems.
#[derive(Debug, clap::Args)]
pub(crate) struct WrapArgs {
    #[command(flatten)]
    pub(super) cases: CaseArgs,
    /// Measure between a VM and its host; compare with QEMU's -netdev user, and with passt
    /// [default: measure on this host]
    ///
    /// --sizes then are numbers of bytes to transfer, and --time has no effect.
    #[arg(long)]
    pub(super) vm: bool,
    /// The carina program to run in the guest [default: carina-guest in the directory of this
    /// program if it exists, otherwise this program]
    #[arg(long, requires = "vm")]
    pub(super) guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench tcp`: the address, whether to be server or client, and what the client
/// sends.
#[derive(Debug, clap::Args)]
pub(crate) struct TcpArgs {
    /// Address and port of the server
    pub(super) address: SocketAddr,
    /// Serve connections [default: be the client]
    #[arg(long)]
    pub(super) serve: bool,
    /// Wait for the answer to each message before sending the next one
    #[arg(long)]
    echo: bool,
    /// Size of messages in bytes
    #[arg(long, default_value = "65536", value_parser = bytes)]
    size: u64,
    /// Time for which the client sends, such as 300ms
    #[arg(long, default_value = "1s", value_parser = parse_ns)]
    time: u64,
    /// Number of connections on which to send at the same time
    #[arg(long, default_value_t = 1)]
    connections: usize,
}

/// Options of `carina bench ip`: cases and sizes to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct IpArgs {
    #[command(flatten)]
    pub(super) cases: CaseArgs,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench bindings`: cases and sizes to measure, the Python interpreter, and the
/// directory of the Go module.
#[derive(Debug, clap::Args)]
pub(crate) struct BindingsArgs {
    #[command(flatten)]
    pub(super) cases: CaseArgs,
    /// Python interpreter that has the package carina [default: the one of the package's tests in
    /// target/python/venv if it exists, otherwise python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Directory with the source code of the Go module
    #[arg(long, value_name = "DIR", default_value = "bindings/go")]
    go_module: PathBuf,
}

/// Options of `carina bench drivers`: cases and sizes to measure, and the program of the guest.
#[derive(Debug, clap::Args)]
pub(crate) struct DriversArgs {
    #[command(flatten)]
    pub(super) cases: CaseArgs,
    /// The carina program to run in the guest [default: this program]
    #[arg(long)]
    pub(super) guest_program: Option<PathBuf>,
}

/// Options of `carina bench restart`: the cases to measure, and the number of runs.
#[derive(Debug, clap::Args)]
pub(crate) struct RestartArgs {
    /// Number of runs of each measurement
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Cases to measure, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(super) cases: Vec<String>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench flows`: the number of flows, the number of allocations at the same
/// time, and the number of runs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FlowsArgs {
    /// Number of flows that are open at the same time
    #[arg(long, default_value_t = 10_000)]
    pub(super) flows: usize,
    /// Number of flow allocations that run at the same time
    #[arg(long, default_value_t = 16)]
    pub(super) askers: usize,
    /// Number of runs, each with new nodes
    #[arg(long, default_value_t = 3)]
    pub(super) runs: usize,
}

/// Which systems that `carina bench local` compares have their two processes pinned to CPUs 0 and
/// 1. The systems are Carina, a bare ring in shared memory (the limit), Unix sockets, UDP and TCP.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum PinArg {
    /// Only the limit, a bare ring in shared memory
    Limit,
    /// The limit and Carina, the systems whose processes share memory
    Shared,
    /// All systems; Unix sockets, UDP and TCP are slower when pinned
    All,
}

/// A measurement that `carina bench paper` repeats.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum PaperCase {
    /// VM to VM on one host (Vrijders and others, figure 4b)
    #[value(name = "fig4b")]
    Fig4b,
    /// VM to VM on two hosts (Vrijders and others, figure 4c)
    #[value(name = "fig4c")]
    Fig4c,
    /// Round-trip time by number of hops (Grasa and others, figure 16.12)
    #[value(name = "fig16.12")]
    Fig1612,
    /// Cost of each normal DIF, host to host over Ethernet (Grasa and others, figure 16.14)
    #[value(name = "fig16.14")]
    Fig1614,
    /// A server that moves (Grasa and others, figure 16.15)
    #[value(name = "fig16.15")]
    Fig1615,
    /// A network that loses, delays, reorders and duplicates frames
    #[value(name = "impaired")]
    Impaired,
}

impl From<PinArg> for Pin {
    fn from(pin: PinArg) -> Self {
        match pin {
            PinArg::Limit => Self::Limit,
            PinArg::Shared => Self::Shared,
            PinArg::All => Self::All,
        }
    }
}

impl From<PaperCase> for Case {
    fn from(case: PaperCase) -> Self {
        match case {
            PaperCase::Fig4b => Self::Fig4b,
            PaperCase::Fig4c => Self::Fig4c,
            PaperCase::Fig1612 => Self::Fig1612,
            PaperCase::Fig1614 => Self::Fig1614,
            PaperCase::Fig1615 => Self::Fig1615,
            PaperCase::Impaired => Self::Impaired,
        }
    }
}

impl BindingsArgs {
    /// The interpreter and the sources that the options name, or the default ones.
    pub(super) fn toolchains(&self) -> Toolchains {
        let of_tests = PathBuf::from("target/python/venv/bin/python");
        let python = self.python.clone();
        Toolchains {
            python: python.unwrap_or_else(|| {
                if of_tests.is_file() {
                    of_tests
                } else {
                    "python3".into()
                }
            }),
            go_module: self.go_module.clone(),
        }
    }
}

impl TcpArgs {
    pub(super) fn job(&self) -> TcpJob {
        TcpJob {
            server: self.address,
            is_echoed: self.echo,
            size: self.size.clamp(1, 1 << 20) as usize,
            time_ns: self.time,
            connections: self.connections.max(1),
        }
    }
}

impl HvArgs {
    pub(super) fn options(&self) -> Result<HvOptions, Failure> {
        let cases = chosen("case", &hv::CASES, |case| case.0, &self.cases)?;
        let (systems, sizes) = match self.hypervisor {
            Hypervisor::Qemu => (&vm_and_host::SYSTEMS[..], hv::sizes()),
            Hypervisor::Xen => (&xen::SYSTEMS[..], xen::SIZES.to_vec()),
        };
        if self.hypervisor == Hypervisor::Xen && self.crowd.is_some() {
            return Err(usage("--crowd is not possible with --hypervisor xen"));
        }
        Ok(HvOptions {
            runs: self.runs.max(1),
            time_ns: self.time,
            sizes: if self.sizes.is_empty() {
                sizes
            } else {
                self.sizes.clone()
            },
            cases,
            systems: chosen("system", systems, |name| *name, &self.systems)?,
            guest_program: self.guest_program.clone(),
            progress: PROGRESS,
        })
    }
}

impl CaseArgs {
    /// The options of a benchmark that has these cases; `sizes` are used if none are given.
    ///
    /// # Errors
    /// A size is not possible.
    pub(crate) fn options<C>(
        self,
        bench: &str,
        cases: Vec<C>,
        sizes: &[u64],
        possible: &RangeInclusive<usize>,
    ) -> Result<Options<C>, Failure> {
        check_sizes(bench, &self.sizes, possible)?;
        Ok(Options {
            cases,
            runs: self.runs.max(1),
            time_ns: self.time,
            sizes: if self.sizes.is_empty() {
                sizes.to_vec()
            } else {
                self.sizes
            },
            progress: PROGRESS,
        })
    }
}

/// The items with the given names, in the order of the names; all items if no name is given. `kind`
/// says in errors what the items are.
///
/// # Errors
/// No item has one of the names.
pub(crate) fn chosen<T: Copy>(
    kind: &str,
    all: &[T],
    name_of: impl Fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<T>, Failure> {
    let is_known = |name: &&String| all.iter().any(|case| name_of(case) == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = all.iter().map(name_of).collect();
        return Err(usage(format!(
            "there is no {kind} {unknown}; there are: {}",
            known.join(", ")
        )));
    }
    let is_chosen = |case: &&T| names.is_empty() || names.iter().any(|name| name == name_of(case));
    Ok(all.iter().filter(is_chosen).copied().collect())
}

fn check_sizes(
    bench: &str,
    sizes: &[u64],
    possible: &RangeInclusive<usize>,
) -> Result<(), Failure> {
    let is_possible =
        |size: &&u64| usize::try_from(**size).is_ok_and(|size| possible.contains(&size));
    match sizes.iter().find(|size| !is_possible(size)) {
        None => Ok(()),
        Some(size) => Err(usage(format!(
            "{size} bytes: sizes of `bench {bench}` are {} to {} bytes",
            possible.start(),
            possible.end()
        ))),
    }
}
