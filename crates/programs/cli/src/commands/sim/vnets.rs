//! `carina sim vnet`: simulates virtual networks whose roles are killed at any step, for many
//! seeds, on all CPUs.

use std::ops::Range;
use std::time::Instant;

use carina_sim::vnets::{self, Outcome as Run, Size, Violation};
use serde_json::json;

use super::all_cpus::on_all_cpus;
use super::parse_seeds;
use crate::Shared;
use crate::failure::{Outcome, failed};
use crate::report::{print_json, print_line, progress};

/// Options of `carina sim vnet`: the seeds to run, and the size of the simulated world.
#[derive(Debug, clap::Args)]
pub(crate) struct VnetArgs {
    /// Range of seeds to run, such as 0..1000, which is 0 to 999
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Size of the simulated world: hosts, providers and networks
    #[arg(long, value_enum, default_value_t = Scale::Small,
          conflicts_with_all = ["pips", "hosts", "networks"])]
    scale: Scale,
    /// Number of providers [default: drawn from the seed]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=16))]
    pips: Option<u8>,
    /// Number of hosts of each provider [default: drawn from the seed]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=200))]
    hosts: Option<u8>,
    /// Number of networks that operators request [default: drawn from the seed]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    networks: Option<u16>,
    /// Number of networks that each operator may have at a time at its VNP [default: 1000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    networks_per_vno: Option<u16>,
    /// Drain no host, cut no connection, and keep all stores available
    #[arg(long)]
    plain: bool,
    /// Print every event, one seed after the other
    #[arg(long)]
    trace: bool,
}

/// Size of the simulated world: number of providers, hosts and networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scale {
    /// Providers, hosts and networks as drawn from the seed
    Small,
    /// 16 networks that compete for two providers with three hosts each
    Contended,
    /// 10 providers with 100 hosts each, and 1,000 requested networks
    Large,
}

impl VnetArgs {
    fn size(&self) -> Size {
        let size = match self.scale {
            Scale::Large => Size::LARGE,
            Scale::Contended => Size::CONTENDED,
            Scale::Small => Size {
                pips: self.pips,
                hosts: self.hosts,
                networks: self.networks,
                ..Size::default()
            },
        };
        Size {
            is_plain: self.plain,
            networks_per_vno: self.networks_per_vno,
            ..size
        }
    }

    /// The size options that were given, as words of the command that repeats a seed.
    fn size_words(&self) -> String {
        let word = |option: &str, count: Option<u64>| {
            count.map_or(String::new(), |count| format!("--{option} {count} "))
        };
        let scale = match self.scale {
            Scale::Large => "--scale large ".to_owned(),
            Scale::Contended => "--scale contended ".to_owned(),
            Scale::Small => {
                let pips = word("pips", self.pips.map(u64::from));
                let hosts = word("hosts", self.hosts.map(u64::from));
                pips + &hosts + &word("networks", self.networks.map(u64::from))
            }
        };
        let share = word("networks-per-vno", self.networks_per_vno.map(u64::from));
        let plain = if self.plain { "--plain " } else { "" };
        scale + &share + plain
    }
}

/// Runs the seeds on all CPUs, and prints those that fail. Fails if there are any.
pub(super) fn run(shared: &Shared, args: &VnetArgs) -> Outcome {
    let began = Instant::now();
    let size = args.size();
    let (mut sum, mut done, mut bad) = (Run::default(), 0_u64, Vec::new());
    let mut take = |result: Result<Run, Violation>| {
        done += 1;
        match result {
            Ok(run) => sum += run,
            Err(violation) => {
                progress(&violation);
                bad.push(violation);
            }
        }
        if args.scale == Scale::Large || done.is_multiple_of(1_000) {
            progress(format!("{done} seeds, {} failed", bad.len()));
        }
    };
    if args.trace {
        for seed in args.seeds.clone() {
            // A closed standard output is reported at the end of the run.
            let mut line = |line: &str| drop(print_line(line));
            take(vnets::run(seed, size, Some(&mut line)));
        }
    } else {
        on_all_cpus(&args.seeds, |seed| vnets::run(seed, size, None), take);
    }
    bad.sort_unstable_by_key(|violation| violation.seed);
    let seeds = args.seeds.end - args.seeds.start;
    let elapsed_s = began.elapsed().as_secs_f64();
    if shared.json {
        let failures = bad
            .iter()
            .map(|failure| json!({"seed": failure.seed, "at": failure.at, "what": failure.what}));
        print_json(&json!({
            "seeds": seeds, "failures": failures.collect::<Vec<_>>(), "wanted": sum.wanted,
            "ready": sum.ready, "refused": sum.refused, "withdrawn": sum.withdrawn,
            "expired": sum.expired, "lost": sum.lost, "moved": sum.moved,
            "drained": sum.drained, "deaths": sum.deaths, "cuts": sum.cuts,
            "stores_away": sum.stores_away, "messages": sum.messages, "seconds": elapsed_s,
        }))?;
    } else {
        print_line(format!(
            "{seeds} seeds in {elapsed_s:.0} s, {} failed; {} networks wanted: {} ready, {} refused \
             with a reason, {} withdrawn, {} whose lease ended, {} whose VNP was lost; {} nodes \
             moved, {} hosts drained; {} deaths, {} connections cut, {} stores away; {} messages",
            bad.len(),
            sum.wanted,
            sum.ready,
            sum.refused,
            sum.withdrawn,
            sum.expired,
            sum.lost,
            sum.moved,
            sum.drained,
            sum.deaths,
            sum.cuts,
            sum.stores_away,
            sum.messages
        ))?;
    }
    match bad.first() {
        None => Ok(()),
        Some(first) => Err(failed(format!(
            "{first}\n  repeat with: carina sim vnet {}--seeds {}..{} --trace",
            args.size_words(),
            first.seed,
            first.seed + 1
        ))),
    }
}
