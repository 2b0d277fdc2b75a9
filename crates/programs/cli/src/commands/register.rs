//! `carina register`: registers a name and refuses its flows, for debugging.

use std::time::Duration;

use carina_api::{AppName, DifName};

use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::{print_json, print_line};

/// Register a name until stopped, for debugging; refuse and print every flow request
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  carina register web.example --dif hv.a")]
pub(crate) struct RegisterArgs {
    /// Application name to register, such as web.example
    name: AppName,
    /// DIF to register the name in, such as hv.a [default: all DIFs of this system]
    #[arg(long)]
    dif: Option<DifName>,
    /// Unregister the name and exit after this time, such as 30s [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = carina_text::duration::parse_ns)]
    hold: Option<u64>,
}

/// Registers a name and keeps it registered until a signal or the time of `--hold` ends it. Refuses
/// all flows to the name.
///
/// # Errors
/// The node refuses the name or ends.
pub(crate) fn run(shared: &Shared, args: RegisterArgs) -> Outcome {
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let node = shared.node()?;
    let registered = node.register(&args.name, args.dif.as_ref());
    let mut registration = registered.attempt(format!("registering {}", args.name))?;
    let difs: Vec<String> = registration
        .difs()
        .iter()
        .map(ToString::to_string)
        .collect();
    if shared.json {
        print_json(&serde_json::json!({ "registered": args.name, "difs": difs }))?
    } else {
        print_line(format!(
            "{} is registered in {}",
            args.name,
            difs.join(", ")
        ))?
    }
    let end = args
        .hold
        .map(|ns| carina_sys::monotonic_ns().saturating_add(ns));
    loop {
        let left = end.map_or(u64::MAX, |end| {
            end.saturating_sub(carina_sys::monotonic_ns())
        });
        if left == 0 || interrupt.is_pending().attempt(TAKING_SIGNALS)? {
            return Ok(());
        }
        let limit = Duration::from_nanos(left).min(LOOK);
        let request = registration
            .next_request_timeout(limit)
            .attempt("waiting for flows")?;
        if let Some(request) = request {
            registration
                .refuse(
                    &request,
                    "`carina register` only reserves this name and accepts no \
                    flows",
                )
                .attempt("refusing a flow")?;
            if shared.json {
                print_json(&serde_json::json!({ "refused": request.remote }))?
            } else {
                print_line(format!("refused a flow request of {}", request.remote))?
            }
        }
    }
}

/// Longest time between two checks for a signal.
const LOOK: Duration = Duration::from_millis(500);
