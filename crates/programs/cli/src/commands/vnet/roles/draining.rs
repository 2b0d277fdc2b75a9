//! `carina vnet drain`, `undrain`: hosts of a provider that all nodes leave.

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

/// A host of a provider, whose operator asks its PIP.
#[derive(Debug, clap::Args)]
pub struct HostArgs {
    /// The host, as in the inventory
    host: String,
    /// The PIP, at this ADDRESS:PORT or dif:NAME
    #[arg(long, value_name = "ADDRESS")]
    pip: String,
    /// The directory of its operator's certificate and key (`carina vnet keys`)
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
}

/// Options of `carina vnet drain`.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    #[command(flatten)]
    at: HostArgs,
    /// How long it may take in all; a move that has begun comes to its end
    #[arg(long, value_name = "TIME", default_value = "30m")]
    limit: Span,
}

impl HostArgs {
    fn client(&self, shared: &Shared) -> Result<PipClient, Failure> {
        end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
        pip_client(shared, &self.pip, &self.keys)
    }
}

/// Has all nodes leave a host.
///
/// # Errors
/// A node cannot leave it, or has not.
pub fn drain(shared: &Shared, args: &DrainArgs) -> Outcome {
    let host = &args.at.host;
    let request = DrainRequest {
        limit_ms: args.limit.duration().as_millis(),
    };
    let drained = args.at.client(shared)?.drain(host, &request);
    let report = drained.attempt(format!("draining host {host}"))?;
    match shared.json {
        true => print_json(&report)?,
        false => print_line(&report)?,
    }
    match report.stayed.len() {
        0 => Ok(()),
        count => Err(failed(format!("{count} nodes are still on host {host}"))),
    }
}

/// Has a host take nodes again.
///
/// # Errors
/// It is not drained.
pub fn undrain(shared: &Shared, args: &HostArgs) -> Outcome {
    let undrained = args.client(shared)?.undrain(&args.host);
    undrained.attempt(format!("having host {} take nodes again", args.host))?;
    match shared.json {
        true => print_json(&json!({ "host": args.host, "is_drained": false })),
        false => print_line(format!("host {} takes nodes again", args.host)),
    }
}
