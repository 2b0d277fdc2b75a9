//! `carina dif retract`: removes an N-1 DIF from a member of a DIF while the member runs.

use std::time::Instant;

use carina_api::control::{Client, IpcpInfo};
use carina_api::{DifName, LocalName};

use super::extend::show;
use super::make::LOOK_AGAIN;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};

/// Options of `carina dif retract`: the member, and the N-1 DIF to remove.
#[derive(Debug, clap::Args)]
pub(crate) struct RetractArgs {
    /// Name of the DIF whose member on this system stops using an N-1 DIF
    name: DifName,
    /// N-1 DIF that the member stops using
    #[arg(long, value_name = "DIF")]
    over: DifName,
    /// Name of the IPCP that is the member, as `carina ipcp list` shows it [default: the only
    /// member of the DIF on this system]
    #[arg(long, value_name = "NAME")]
    ipcp: Option<LocalName>,
}

/// Removes an N-1 DIF from a member, and prints the N-1 DIFs of the member. With `--wait`, first
/// waits until the member has no N-1 flow left in the removed N-1 DIF.
///
/// # Errors
/// The node refuses or does not run, or N-1 flows remain when the time of `--wait` is over.
pub(super) fn run(shared: &Shared, args: &RetractArgs) -> Outcome {
    let node = shared.control();
    let ipcp = args.ipcp.as_ref().map(LocalName::as_str);
    let retracted = node
        .retract_dif(args.name.as_str(), args.over.as_str(), ipcp)
        .attempt(format!(
            "removing N-1 DIF {} from DIF {}",
            args.over, args.name
        ))?;
    let member = match shared.wait {
        Some(_) => wait(
            &node,
            retracted,
            &args.over,
            Instant::now() + shared.wait_limit(),
        )?,
        None => retracted,
    };
    show(shared, &member)
}

fn wait(
    node: &Client,
    retracted: IpcpInfo,
    over: &DifName,
    until: Instant,
) -> Result<IpcpInfo, Failure> {
    let mut member = retracted;
    loop {
        let n1 = member.member.iter().flat_map(|member| &member.n1);
        let left = n1.filter(|n1| n1.dif == *over).count();
        if left == 0 {
            return Ok(member);
        }
        if Instant::now() >= until {
            let dif = &member.dif;
            let what = format!("DIF {dif}: {left} N-1 flows in {over} have not ended yet");
            return Err(failed(what));
        }
        std::thread::sleep(LOOK_AGAIN);
        let ipcps = node.ipcps().attempt("reading the state of the member")?;
        let found = ipcps.into_iter().find(|ipcp| ipcp.name == member.name);
        member = found.ok_or_else(|| failed(format!("{} no longer exists", member.name)))?;
    }
}
