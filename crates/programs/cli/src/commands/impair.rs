//! `carina impair`: joins two interfaces and impairs the frames that pass.

use carina_measure::traffic::{Rate, share};
use carina_netdev::FaultPlan;
use carina_text::duration::parse_ns;
use clap::Args;

use super::wire_bridge::{self, Pace};
use crate::Shared;
use crate::failure::{Outcome, usage};

/// Join two Ethernet interfaces; lose, delay, reorder or duplicate passing frames
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  carina impair veth1 veth2 --loss 1% --delay 10ms\n  \
    carina impair eth1 eth2 --delay 20ms --jitter 5ms --rate 100Mbit -t 60s --json\n\nEvery \
    frame of one interface leaves at the other; the two interfaces need no addresses. The \
    impairment is the same in both directions, but each direction draws its own random numbers, \
    which the same seed repeats. Frames that a kernel has left unsegmented are segmented first, \
    so that frames are lost as on a wire. Needs CAP_NET_RAW. SIGINT and SIGTERM end the command, \
    which then prints its counters."
)]
pub(crate) struct ImpairArgs {
    /// First interface to join, such as eth1
    first: String,
    /// Second interface to join, such as eth2
    second: String,
    /// Share of frames to lose, such as 1% or 0.01
    #[arg(long, default_value = "0", value_parser = share)]
    loss: f64,
    /// Delay of every frame, such as 20ms
    #[arg(long, default_value = "0s", value_parser = parse_ns)]
    delay: u64,
    /// Random variation of the delay: longer or shorter by up to this time, such as 2ms; at most
    /// --delay
    #[arg(long, default_value = "0s", value_parser = parse_ns)]
    jitter: u64,
    /// Share of frames that are not delayed, and so overtake others, such as 1%
    #[arg(long, default_value = "0", value_parser = share)]
    reorder: f64,
    /// Share of frames to send twice, such as 1%
    #[arg(long, default_value = "0", value_parser = share)]
    duplicate: f64,
    /// Bandwidth of each direction, such as 100Mbit [default: no limit]
    #[arg(long)]
    rate: Option<Rate>,
    /// Largest number of bytes that wait in each direction because of --rate and --delay; a frame
    /// for which there is no room is dropped
    #[arg(long, default_value_t = FaultPlan::default().queue_bytes)]
    queue: usize,
    /// Seed of the random numbers: the same seed gives the same faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    pace: Pace,
}

/// Bridges two interfaces and impairs the frames in both directions, until a signal or the time
/// limit ends it. Then prints its counters. The two directions draw different random numbers.
///
/// # Errors
/// An interface cannot be used, or the plan makes no sense.
pub(crate) fn run(shared: &Shared, args: &ImpairArgs) -> Outcome {
    let rate_bps = match args.rate {
        None => 0,
        Some(Rate::Bits(bps)) => bps as u64,
        Some(Rate::Sdus(_)) => {
            return Err(usage("--rate: must be in bits per second, such as 100Mbit"));
        }
    };
    let plan = FaultPlan {
        loss: args.loss,
        duplicate: args.duplicate,
        reorder: args.reorder,
        delay_ns: args.delay,
        jitter_ns: args.jitter,
        rate_bps,
        queue_bytes: args.queue,
        seed: args.seed,
    };
    plan.check().map_err(usage)?;
    let back = FaultPlan {
        seed: args.seed.wrapping_add(1),
        ..plan
    };
    let names = [args.first.as_str(), args.second.as_str()];
    wire_bridge::run(shared, names, [plan, back], [None, None], &args.pace)
}
