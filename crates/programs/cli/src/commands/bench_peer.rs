//! `carina bench-peer`: the server of a benchmark, which the benchmark itself starts.

use std::sync::Arc;

use carina_api::{AppName, DifName};
use carina_measure::crowd::drain;
use carina_measure::trial::server::{Event, Scope, serve};

use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::interrupt::{TAKING_SIGNALS, end_server_with_signal};
use crate::report::progress;

/// Run the server side of `carina bench`. The server opens every socket that its client requests:
/// use it for benchmarks only.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchPeerArgs {
    /// Application name to register
    name: AppName,
    /// DIF to register the name in [default: all DIFs]
    #[arg(long)]
    dif: Option<DifName>,
    /// Serve one client after the other [default: exit after the first client]
    #[arg(long)]
    stay: bool,
    /// Accept flows and discard their SDUs [default: serve measurements]
    #[arg(long, conflicts_with = "stay")]
    drain: bool,
}

/// Registers the name and serves the clients of a benchmark. Without `--stay`, ends after the first
/// client.
///
/// # Errors
/// The node refuses to register the name, or ends.
pub(crate) fn run(shared: &Shared, args: BenchPeerArgs) -> Outcome {
    end_server_with_signal().attempt(TAKING_SIGNALS)?;
    let registered = shared.node()?.register(&args.name, args.dif.as_ref());
    let registration = registered.attempt(format!("registering {}", args.name))?;
    if args.drain {
        return drain(registration).attempt("discarding what flows carry");
    }
    Ok(serve(
        registration,
        !args.stay,
        Scope::Bench,
        Arc::new(|event: Event<'_>| {
            if let Event::Failed(error) = event {
                progress(format!("carina: a client failed: {error}"));
            }
        }),
    )?)
}
