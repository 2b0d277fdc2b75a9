//! `carina vnet drain`, `undrain`: moves all nodes away from a host of a provider.

use std::path::PathBuf;

use carina_vnet::document::Span;
use carina_vnet_roles::operator::PipClient;
use carina_vnet_roles::serving::drains::DrainRequest;
use serde_json::json;

use super::operator::pip_client;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Options that name a host and its PIP, and the directory of the key with which to call the PIP.
#[derive(Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// Name of the host, as in the inventory of its PIP
    host: String,
    /// Address of the PIP: ADDRESS:PORT, or dif:NAME over flows of a DIF
    #[arg(long, value_name = "ADDRESS")]
    pip: String,
    /// Directory with the certificate and key of the PIP's operator (made by
    /// `carina vnet keys issue`)
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
}

/// Options of `carina vnet drain`: the host to empty, and how long that may take.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    at: HostArgs,
    /// Time limit for all nodes together, such as 30m; the node that moves at this time stays on
    /// its host
    #[arg(long, value_name = "TIME", default_value = "30m")]
    limit: Span,
}

impl HostArgs {
    fn client(&self, shared: &Shared) -> Result<PipClient, Failure> {
        end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
        pip_client(shared, &self.pip, &self.keys)
    }
}

/// Moves all nodes away from a host.
///
/// # Errors
/// A node cannot move, or did not move.
pub(crate) fn drain(shared: &Shared, args: &DrainArgs) -> Outcome {
    let host = &args.at.host;
    let request = DrainRequest {
        limit_ms: args.limit.duration().as_millis(),
    };
    let drained = args.at.client(shared)?.drain(host, &request);
    let report = drained.attempt(format!("draining host {host}"))?;
    if shared.json {
        print_json(&report)?
    } else {
        print_line(&report)?
    }
    match report.stayed.len() {
        0 => Ok(()),
        count => Err(failed(format!("{count} nodes are still on host {host}"))),
    }
}

/// Allows a host to take nodes again.
///
/// # Errors
/// The host is not drained.
pub(crate) fn undrain(shared: &Shared, args: &HostArgs) -> Outcome {
    let undrained = args.client(shared)?.undrain(&args.host);
    undrained.attempt(format!("undraining host {}", args.host))?;
    if shared.json {
        print_json(&json!({ "host": args.host, "is_drained": false }))
    } else {
        print_line(format!("host {} accepts nodes again", args.host))
    }
}
