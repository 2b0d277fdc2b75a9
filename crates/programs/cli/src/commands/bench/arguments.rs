//! Options of the benches, and what they choose.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use carina_bench::comparison::Pin;
use carina_bench::hv::{self, HvOptions};
use carina_bench::paper::Case;
use carina_bench::{Options, vm_and_host};
use carina_measure::traffic::bytes;
use carina_text::duration::parse_ns;

use super::PROGRESS;
use crate::failure::{Failure, usage};

/// Options of `carina bench paper`.
#[derive(Debug, clap::Args)]
pub struct PaperArgs {
    /// The cases [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(super) cases: Vec<PaperCase>,
    /// Number of runs of all measurements
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Duration of each measurement, such as 300ms
    #[arg(long, default_value = "300ms", value_parser = parse_ns)]
    pub(super) time: u64,
    /// SDU sizes in bytes [default: those of each figure]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub(super) sizes: Vec<u64>,
    /// Write tables, figures (SVG) and results.json into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// The carina program for guests [default: this one]
    #[arg(long)]
    pub(super) guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench hv`.
#[derive(Debug, clap::Args)]
pub struct HvArgs {
    /// Number of runs of all measurements
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Duration of each measurement, such as 300ms
    #[arg(long, default_value = "300ms", value_parser = parse_ns)]
    pub(super) time: u64,
    /// SDU sizes in bytes [default: 0 to 4000 by 250, 64, 16k, 64k, 1M]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub(super) sizes: Vec<u64>,
    /// Cases [default: guest-to-host,host-to-guest,echo]
    #[arg(long, value_delimiter = ',')]
    pub(super) cases: Vec<String>,
    /// Systems [default: carina,virtqueue,limit,virtio-net,e1000]
    #[arg(long, value_delimiter = ',')]
    pub(super) systems: Vec<String>,
    /// The carina program for the guest [default: this one]
    #[arg(long)]
    pub(super) guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench local`.
#[derive(Debug, clap::Args)]
pub struct LocalArgs {
    /// Number of runs of all measurements
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Duration of each measurement, such as 300ms
    #[arg(long, default_value = "250ms", value_parser = parse_ns)]
    pub(super) time: u64,
    /// SDU sizes in bytes [default: 64,512,1500,4000,65536]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub(super) sizes: Vec<u64>,
    /// Pin the two processes of these systems to CPUs 0 and 1
    #[arg(long, value_enum, default_value = "shared")]
    pub(super) pin: PinArg,
}

/// Options of the benches that have cases and sizes.
#[derive(Debug, clap::Args)]
pub struct CaseArgs {
    /// Number of runs of all measurements
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Duration of each measurement, such as 300ms
    #[arg(long, default_value = "1s", value_parser = parse_ns)]
    pub(super) time: u64,
    /// Sizes in bytes: of frames without FCS, or of payloads [default: see below]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub(super) sizes: Vec<u64>,
    /// Cases [default: all]
    #[arg(long, value_delimiter = ',')]
    pub cases: Vec<String>,
}

/// Options of `carina bench guest`.
#[derive(Debug, clap::Args)]
pub struct GuestArgs {
    #[command(flatten)]
    pub(super) cases: CaseArgs,
    /// The carina program for the guest [default: this one]
    #[arg(long)]
    pub(super) guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench drivers`.
#[derive(Debug, clap::Args)]
pub struct DriversArgs {
    #[command(flatten)]
    pub(super) cases: CaseArgs,
    /// The carina program for the guest [default: this one]
    #[arg(long)]
    pub(super) guest_program: Option<PathBuf>,
}

/// Options of `carina bench restart`.
#[derive(Debug, clap::Args)]
pub struct RestartArgs {
    /// Number of runs of all measurements
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Cases [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(super) cases: Vec<String>,
    #[arg(long, hide = true)]
    pub(super) in_network_namespace: bool,
}

/// Options of `carina bench flows`.
#[derive(Debug, Clone, clap::Args)]
pub struct FlowsArgs {
    /// Number of flows that are open at once
    #[arg(long, default_value_t = 10_000)]
    pub(super) flows: usize,
    /// Number of allocations that run at once
    #[arg(long, default_value_t = 16)]
    pub(super) askers: usize,
    /// Number of runs, each with new nodes
    #[arg(long, default_value_t = 3)]
    pub(super) runs: usize,
}

/// Which systems of `carina bench local` run pinned: their two processes on CPUs 0 and 1. The
/// systems are Carina, the limit (a bare shared-memory ring), Unix sockets, UDP and TCP.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum PinArg {
    /// Only the limit (a bare shared-memory ring)
    Limit,
    /// The limit and Carina, whose processes share memory
    Shared,
    /// All systems. Unix sockets, UDP and TCP are slower when pinned
    All,
}

/// A case of `carina bench paper`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum PaperCase {
    /// VM to VM on one host
    #[value(name = "fig4b")]
    Fig4b,
    /// VM to VM on two hosts
    #[value(name = "fig4c")]
    Fig4c,
    /// Round-trip times by hops
    #[value(name = "fig16.12")]
    Fig1612,
    /// Host to host over Ethernet: what each normal DIF costs
    #[value(name = "fig16.14")]
    Fig1614,
    /// A server that moves
    #[value(name = "fig16.15")]
    Fig1615,
    /// A network that loses, delays, reorders and duplicates
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

impl HvArgs {
    pub(super) fn options(&self) -> Result<HvOptions, Failure> {
        let cases = chosen("case", &hv::CASES, |case| case.0, &self.cases)?;
        Ok(HvOptions {
            runs: self.runs.max(1),
            time_ns: self.time,
            sizes: if self.sizes.is_empty() {
                hv::sizes()
            } else {
                self.sizes.clone()
            },
            cases,
            systems: chosen("system", &vm_and_host::SYSTEMS, |name| *name, &self.systems)?,
            guest_program: self.guest_program.clone(),
            progress: PROGRESS,
        })
    }
}

impl CaseArgs {
    /// The options of a bench with these cases, and with sizes of its own where none are given.
    ///
    /// # Errors
    /// A size that is not possible.
    pub fn options<C>(
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

/// The cases, or what `kind` says, of these names, in their own order; all where no name is given.
///
/// # Errors
/// A name that is not among them.
pub fn chosen<T: Copy>(
    kind: &str,
    all: &[T],
    name_of: impl Fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<T>, Failure> {
    let is_known = |name: &&String| all.iter().any(|case| name_of(case) == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = all.iter().map(name_of).collect();
        return Err(usage(format!(
            "no {kind} {unknown}; there are {}",
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
    let is_possible = |size: &&u64| usize::try_from(**size).is_ok_and(|it| possible.contains(&it));
    match sizes.iter().find(|size| !is_possible(size)) {
        None => Ok(()),
        Some(size) => Err(usage(format!(
            "{size} bytes: sizes of `bench {bench}` are {} to {} bytes",
            possible.start(),
            possible.end()
        ))),
    }
}
