//! `carina dif extend`: adds an N-1 DIF to a member of a DIF while the member runs.

use std::time::Instant;

use carina_api::control::{Client, DifExtend, IpcpInfo, N1Info, N1State};
use carina_api::{AppName, DifName, LocalName};

use super::make::LOOK_AGAIN;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::Interrupt;
use crate::report::{print_json, print_line};

/// Options of `carina dif extend`: the member, and the N-1 DIF to add.
#[derive(Debug, clap::Args)]
pub(crate) struct ExtendArgs {
    /// Name of the DIF whose member on this system gets another N-1 DIF
    name: DifName,
    /// N-1 DIF to add; this system must already be a member of that DIF
    #[arg(long, value_name = "DIF")]
    over: DifName,
    /// Name of the member to enroll with over the new N-1 DIF, such as net.host2 [default: the
    /// --via of `carina dif join`, else any member]
    #[arg(long, value_name = "IPCP")]
    via: Option<AppName>,
    /// Name of the IPCP that is the member, as `carina ipcp list` shows it [default: the only
    /// member of the DIF on this system]
    #[arg(long, value_name = "NAME")]
    ipcp: Option<LocalName>,
}

/// Adds an N-1 DIF to a member, and prints the N-1 DIFs of the member. With `--wait`, first waits
/// until the member has a neighbour over the new N-1 DIF.
///
/// # Errors
/// The node refuses or does not run, or the member has no neighbour there in time.
pub(super) fn run(shared: &Shared, args: &ExtendArgs) -> Outcome {
    let node = shared.control();
    let wish = DifExtend {
        over: args.over.clone(),
        via: args.via.clone(),
        ipcp: args.ipcp.clone(),
    };
    let stop = Interrupt::take().attempt("waiting for signals")?;
    let made = node
        .extend_dif(args.name.as_str(), &wish)
        .attempt(format!("extending DIF {}", args.name))?;
    let member = match shared.wait {
        Some(_) => {
            let until = Instant::now() + shared.wait_limit();
            wait(&node, &made, &args.over, until, &stop)?
        }
        None => made,
    };
    show(shared, &member)
}

/// Prints the N-1 DIFs of a member.
///
/// # Errors
/// Standard output is closed, or the write fails.
pub(super) fn show(shared: &Shared, member: &IpcpInfo) -> Outcome {
    if shared.json {
        return print_json(member);
    }
    let over = member.member.iter().flat_map(|member| &member.over);
    let over: Vec<&str> = over.map(DifName::as_str).collect();
    print_line(format!(
        "{} of DIF {} is over {}",
        member.name,
        member.dif,
        over.join(", ")
    ))
}

fn wait(
    node: &Client,
    made: &IpcpInfo,
    over: &DifName,
    until: Instant,
    stop: &Interrupt,
) -> Result<IpcpInfo, Failure> {
    loop {
        let ipcps = node.ipcps().attempt("reading the state of the member")?;
        let found = ipcps.into_iter().find(|ipcp| ipcp.name == made.name);
        let Some(found) = found.filter(|ipcp| ipcp.member.is_some()) else {
            return Err(failed(format!("{} no longer exists", made.name)));
        };
        let n1 = found.member.iter().flat_map(|member| &member.n1);
        let here: Vec<&N1Info> = n1.filter(|n1| n1.dif == *over).collect();
        if here.iter().any(|n1| n1.neighbour.is_some()) {
            return Ok(found);
        }
        if let Some(n1) = here.iter().find(|n1| n1.state == N1State::Refused) {
            let why = n1.reason.as_deref().unwrap_or("the node gave no reason");
            return Err(crate::failure::refused(format!("DIF {}: {why}", made.dif)));
        }
        if Instant::now() >= until {
            let why = here.iter().find_map(|n1| n1.reason.clone());
            let why = why.unwrap_or_else(|| "no member has answered yet".to_owned());
            return Err(failed(format!(
                "DIF {}: no neighbour over {over} yet ({why}); the member keeps trying",
                made.dif
            )));
        }
        if stop
            .comes_within(LOOK_AGAIN)
            .attempt("waiting for signals")?
        {
            return Err(Failure::Interrupted(format!(
                "{0} keeps trying over {over}; `carina dif retract {1} --over {over} --ipcp \
                 {0}` removes that N-1 DIF",
                made.name, made.dif
            )));
        }
    }
}
