//! `carina bench-peer`: the other side of a bench, started by the bench itself.

use std::sync::Arc;

use carina_api::{AppName, DifName};
use carina_measure::trial::server::{Event, Scope, serve};

use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::interrupt::{TAKING_SIGNALS, end_server_with_signal};
use crate::report::progress;

/// The other side of `carina bench`. It opens whatever sockets its client asks for: not for
/// anything but a bench.
#[derive(Debug, clap::Args)]
pub struct BenchPeerArgs {
    /// The name to register
    name: AppName,
    /// The DIF [default: all]
    #[arg(long)]
    dif: Option<DifName>,
    /// Serve one client after the other, instead of ending with the first
    #[arg(long)]
    stay: bool,
}

/// Runs the command.
///
/// # Errors
/// The node refuses or ends.
pub fn run(shared: &Shared, args: BenchPeerArgs) -> Outcome {
    end_server_with_signal().attempt(TAKING_SIGNALS)?;
    let registered = shared.node()?.register(&args.name, args.dif.as_ref());
    let registration = registered.attempt(format!("registering {}", args.name))?;
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
